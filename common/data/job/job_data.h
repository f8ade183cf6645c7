// Parses and checks the job's "data" without opening files (docs/data.md). formats.h has the
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

// One component of a split's examples. `key` is the dotted key of the column in the job, for
// messages.
struct DataColumn {
  std::string name, key;
  // The source of the column: a file's path as in the job, or the name of a part of the split's
  // files. The format defines the kind of source. A column with several parts lists them in
  // `parts`, and `source` joins them for messages.
  std::string source;
  std::vector<std::string> parts;
  // The type of the encoded bytes, such as "image", for formats that do not store the type.
  std::string decode;
  std::string dtype;                   // "" keeps the file's type, but converts float64 to float32.
  double multiplied = 1, divided = 1;  // From the key "scale".
  std::optional<std::vector<int64_t>> shape;  // The shape of one example. One dimension may be -1.
  bool picture = false;                       // True if the column is decoded from image files.
};

// How pictures are converted to tensors of one shape.
struct ImageOptions {
  int channels = 3;               // 3 for RGB, or 1 for grey.
  int64_t height = 0, width = 0;  // 0 keeps the files' size, which must be the same for all files.
  // If above 0, the shorter side is resized to this length, then the centre is cropped. If 0, the
  // whole picture is resized.
  int64_t shorter_side = 0;
};

struct CsvOptions {
  bool header = true;
  char delimiter = ',';
};

// How a file of tokens is divided into windows.
struct WindowOptions {
  std::string dtype = "uint8";  // The type of a token in the file: uint8, uint16 or uint32.
  int64_t length = 0, stride = 0;
  // If true, a second component "y" has the tokens one position after those of "x".
  bool targets = true;
};

// Where a split's examples are cached. Examples are cached after reading, before shuffling and
// conversion.
struct CacheOptions {
  enum class Kind { kNone, kMemory, kDisk };
  Kind kind = Kind::kNone;
  std::string folder;  // For kDisk, the path as in the job.
};

struct DataSplit {
  enum class Kind { kNone, kProgram, kFiles };
  Kind kind = Kind::kNone;
  std::string key;  // For example "data.train".
  std::string format;
  std::vector<DataColumn> columns;  // In the order of a batch's components.
  // The files as in the job, for formats with the sources kFrom and kParts. The members after this
  // one are keys of single formats.
  std::vector<std::string> paths;
  ImageOptions image;
  std::vector<Transform> transforms;  // Transforms of the columns with pictures.
  // MixUp after the transforms. If `classes` is 0, the files determine the number of classes.
  std::optional<MixUpOptions> mixup;
  CsvOptions csv;
  WindowOptions windows;
  int64_t examples = 0;  // For unpaired folders. 0 means the size of the smaller folder.
  bool shuffle = false;
  // The part of the files' examples that the split uses, in the files' order. Either the split
  // skips `skip` examples and then takes `take`, or it uses the range `fraction` of all examples.
  int64_t skip = 0;
  std::optional<int64_t> take;
  std::optional<std::pair<double, double>> fraction;
  bool is_part() const { return skip > 0 || take || fraction; }
  CacheOptions cache;
  bool skip_damaged = false;  // A copy of DataOptions::skip_damaged.
};

// How the training split is distributed to replicas (docs/data.md, "Sharding").
enum class AutoShard { kData, kFile, kOff };
inline constexpr std::string_view kAutoShardNames[] = {"data", "file", "off"};

// Options for loading examples: the keys of "data" other than splits. They also apply to the
// program's own data.
struct DataOptions {
  std::optional<int> threads, prefetch;  // nullopt means "auto".
  bool skip_damaged = false;             // True if "on_error" is "skip".
  AutoShard auto_shard = AutoShard::kData;
};

// One DataSplit for each Split. If the job has no data, all are kProgram.
using JobData = std::array<DataSplit, 3>;
inline const DataSplit& SplitOf(const JobData& data, Split split) {
  return data[static_cast<int>(split)];
}

// A data format, with functions that read its keys in the job. To add a format, add an entry to
// data_formats.cc and a reader to formats.cc.
struct DataFormat {
  std::string_view name;
  // How a column of the job names its source.
  enum class Source {
    kPath,   // The required key "path": each column is a file.
    kFrom,   // The key "from": a part of the files in the split's "path".
    kParts,  // The key "from": a part, or a list of parts.
  };
  Source source = Source::kPath;
  // Reads the keys of this format into *split, and completes or refuses the columns.
  void (*read)(JsonObject* object, DataSplit* split);
  // Returns the files of a split as pairs of the dotted key and the path in the job.
  std::vector<std::pair<std::string, std::string>> (*files)(const DataSplit& split);
};
const std::vector<DataFormat>& DataFormats();
// Returns true if a split of this format can have several files with several examples each.
bool ShardsByFile(std::string_view format);

// Errors are ConfigurationErrors that name the dotted key.
absl::StatusOr<JobData> ParseJobData(const Json& data);
// Parses the options of the job's "data". Returns the defaults if the job has no data.
absl::StatusOr<DataOptions> ParseDataOptions(const Json& data);
// Returns all files of all splits as pairs of the dotted key and the path in the job.
std::vector<std::pair<std::string, std::string>> FilesOf(const JobData& data);

// A difference that makes two resolved jobs train on different examples, or in a different order. A
// run of one job cannot resume with the other job.
struct TrainingDifference {
  std::string key, before, now;
};
std::optional<TrainingDifference> DifferenceInTraining(const Json& before, const Json& now);

// Adds "order", the order of the columns in the text, to each split of job["data"] that has
// "columns" and no "order".
void NoteColumnOrder(OrderedJson* job);

}  // namespace muster::data
