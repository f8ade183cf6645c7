// The job's "data", parsed and checked without opening a file (docs/data.md). formats.h has the
// readers of the files.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json/ordered_json.h"
#include "muster/handles.h"
#include "muster/transform_steps.h"

namespace muster::data {

// One component of a split's examples. `key` is its dotted key in the job, for messages.
struct DataColumn {
  std::string name, key;
  // The source of the column, as its format defines it: a file's path as in the job, or a part of
  // the split's own files. `parts` is set instead where there are several.
  std::string source;
  std::vector<std::string> parts;
  // The type of bytes (such as "image"), for formats that cannot tell.
  std::string decode;
  std::string dtype;                          // "": as in the file, but float64 becomes float32.
  double multiplied = 1, divided = 1;         // Key "scale".
  std::optional<std::vector<int64_t>> shape;  // Of one example. One dimension may be -1.
  bool picture = false;                       // Decoded from an image file.
};

// The conversion of pictures to tensors of one shape.
struct ImageOptions {
  int channels = 3;               // 3, or 1 for grey.
  int64_t height = 0, width = 0;  // 0: as in the files, which must then be equal.
  // Resize the shorter side to this, then crop the centre. 0: resize the whole.
  int64_t shorter_side = 0;
};

struct CsvOptions {
  bool header = true;
  char delimiter = ',';
};

// Windows of a long row of tokens.
struct WindowOptions {
  std::string dtype = "uint8";  // Type of a token in the file: uint8, uint16 or uint32.
  int64_t length = 0, stride = 0;
  bool targets = true;  // y is x, one token later.
};

// Where the examples of a split are cached after reading, before they are shuffled and converted.
struct CacheOptions {
  enum class Kind { kNone, kMemory, kDisk };
  Kind kind = Kind::kNone;
  std::string folder;  // For kDisk: the path as in the job.
};

struct DataSplit {
  enum class Kind { kNone, kProgram, kFiles };
  Kind kind = Kind::kNone;
  std::string key;  // Such as "data.train".
  std::string format;
  std::vector<DataColumn> columns;  // In the order of a batch's components.
  // For formats whose columns are parts of the split's files: the files, as in the job. The
  // format's own keys follow.
  std::vector<std::string> paths;
  ImageOptions image;
  std::vector<Transform> transforms;  // Apply to the columns that are pictures.
  // Applied after the transforms. `classes` 0: the number of classes in the files.
  std::optional<MixUpOptions> mixup;
  CsvOptions csv;
  WindowOptions windows;
  int64_t examples = 0;  // For unpaired folders. 0: the size of the smaller folder.
  bool shuffle = false;
  // The part of the files' examples that the split uses, in their order: skips `skip`, then takes
  // `take`, or uses this fraction of the whole.
  int64_t skip = 0;
  std::optional<int64_t> take;
  std::optional<std::pair<double, double>> fraction;
  bool is_part() const { return skip > 0 || take || fraction; }
  CacheOptions cache;
  bool skip_damaged = false;  // Copy of DataOptions::skip_damaged.
};

// The assignment of the training split to replicas (docs/data.md, "Sharding").
enum class AutoShard { kData, kFile, kOff };
inline constexpr std::string_view kAutoShardNames[] = {"data", "file", "off"};

// The keys of "data" besides its splits: the options for loading examples, also those of the
// program's own data.
struct DataOptions {
  std::optional<int> threads, prefetch;  // Absent: "auto".
  bool skip_damaged = false;             // Key on_error: "skip".
  AutoShard auto_shard = AutoShard::kData;
};

// One DataSplit for each Split. All are kProgram where the job has no data.
using JobData = std::array<DataSplit, 3>;
inline const DataSplit& SplitOf(const JobData& data, Split split) {
  return data[static_cast<int>(split)];
}

// The part of a format that needs no files. To add a format, add an entry here in data_formats.cc
// and a reader in formats.cc.
struct DataFormat {
  std::string_view name;
  // The key of a column that names its source.
  enum class Source {
    kPath,   // "path", required: each column is a file.
    kFrom,   // "from": a part of the files that the split's own "path" names.
    kParts,  // "from": a part, or a list of parts.
  };
  Source source = Source::kPath;
  // Reads the keys of this format, and completes or refuses the columns.
  void (*read)(JsonObject* object, DataSplit* split);
  // Returns the files of a split as named in the job, with the dotted key of each.
  std::vector<std::pair<std::string, std::string>> (*files)(const DataSplit& split);
};
const std::vector<DataFormat>& DataFormats();
// True where a split of this format can have several files with several examples each.
bool ShardsByFile(std::string_view format);

// Errors are ConfigurationErrors that name the dotted key.
absl::StatusOr<JobData> ParseJobData(const Json& data);
// Parses the options from the same "data". Returns the defaults where the job has no data.
absl::StatusOr<DataOptions> ParseDataOptions(const Json& data);
// Returns all files of all splits by key, with paths as in the job.
std::vector<std::pair<std::string, std::string>> FilesOf(const JobData& data);

// The first difference that makes two resolved jobs train on other examples, or in another order:
// the key and its two values. Files are compared by their digests where both jobs have them, else
// by their paths. A run of one job cannot resume with the other.
struct TrainingDifference {
  std::string key, before, now;
};
std::optional<TrainingDifference> DifferenceInTraining(const Json& before, const Json& now);

// Adds "order", the order of the columns in the text, to each split of job["data"] that has
// "columns" and no "order".
void NoteColumnOrder(OrderedJson* job);

}  // namespace muster::data
