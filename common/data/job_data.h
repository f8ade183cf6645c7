// The job's "data": what it says, read and checked without touching a file (docs/data.md). What
// reads the files is in formats.h.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ordered_json.h"
#include "muster/handles.h"
#include "muster/transform_steps.h"

namespace muster::data {

// One component of a split's examples. `key` is its dotted place in the job, for messages.
struct DataColumn {
  std::string name, key;
  // What the format makes of it: a file's path, as the job has it, or the part of the split's own
  // files that the column is made of. `parts` instead, where those are several.
  std::string source;
  std::vector<std::string> parts;
  std::string decode;                  // what bytes are ("image"), for formats that cannot tell
  std::string dtype;                   // "": as in the file, floating point of 64 bits as 32
  double multiplied = 1, divided = 1;  // "scale"
  std::optional<std::vector<int64_t>> shape;  // of one example, one -1 allowed
  bool picture = false;                       // decoded from an image file
};

// How pictures become tensors of one shape.
struct ImageOptions {
  int channels = 3;               // or 1: grey
  int64_t height = 0, width = 0;  // 0: as the files have them, which must then be alike
  int64_t shorter_side = 0;  // resized to that, then cropped in the centre; 0: resized as a whole
};

struct CsvOptions {
  bool header = true;
  char delimiter = ',';
};

// Windows of a long row of tokens.
struct WindowOptions {
  std::string dtype = "uint8";  // of a token in the file: or uint16, uint32
  int64_t length = 0, stride = 0;
  bool targets = true;  // y is x, one token further
};

// Where the examples of a split are kept once they are read, before they are shuffled and
// converted.
struct CacheOptions {
  enum class Kind { kNone, kMemory, kDisk };
  Kind kind = Kind::kNone;
  std::string folder;  // kDisk: as the job has it
};

struct DataSplit {
  enum class Kind { kNone, kProgram, kFiles };
  Kind kind = Kind::kNone;
  std::string key;  // "data.train"
  std::string format;
  std::vector<DataColumn> columns;  // in the order of a batch's components
  // Where not the columns are files: those of the split, as the job has them, and what the format's
  // own keys say.
  std::vector<std::string> paths;
  ImageOptions image;
  std::vector<Transform> transforms;  // of the columns that are pictures
  std::optional<MixUpOptions> mixup;  // after them; `classes` 0: as many as the files have
  CsvOptions csv;
  WindowOptions windows;
  int64_t examples = 0;  // of folders that are no pairs; 0: as many as the smaller one has
  bool shuffle = false;
  // Of the files' examples, in their order: those from `skip` on, `take` of them, or else those of
  // this part of the whole.
  int64_t skip = 0;
  std::optional<int64_t> take;
  std::optional<std::pair<double, double>> fraction;
  bool is_part() const { return skip > 0 || take || fraction; }
  CacheOptions cache;
  bool skip_damaged = false;  // DataOptions'
};

// Which replica reads what of the training split (docs/data.md, "Sharding").
enum class AutoShard { kData, kFile, kOff };
inline constexpr std::string_view kAutoShardNames[] = {"data", "file", "off"};

// What "data" says besides its splits: how examples are loaded, the program's own too.
struct DataOptions {
  std::optional<int> threads, prefetch;  // absent: "auto"
  bool skip_damaged = false;             // on_error: "skip"
  AutoShard auto_shard = AutoShard::kData;
};

// A split for each Split. kProgram for all of them where the job has no data.
using JobData = std::array<DataSplit, 3>;
inline const DataSplit& SplitOf(const JobData& data, Split split) {
  return data[static_cast<int>(split)];
}

// A format's half that needs no files. To add one: an entry here, in data_formats.cc, and what
// reads it, in formats.cc.
struct DataFormat {
  std::string_view name;
  // The key of a column that says what it is made of.
  enum class Source {
    kPath,   // "path", which has to be there: each column is a file
    kFrom,   // "from": a part of the files that the split's own "path" names
    kParts,  // the same, or a list of several
  };
  Source source = Source::kPath;
  // Reads the keys that are the format's own, and completes or refuses the columns.
  void (*read)(JsonObject* object, DataSplit* split);
  // The files of a split as the job has them, by the dotted key that names each.
  std::vector<std::pair<std::string, std::string>> (*files)(const DataSplit& split);
};
const std::vector<DataFormat>& DataFormats();
// Whether a split of this format can have several files with several examples each.
bool ShardsByFile(std::string_view format);

// Errors are ConfigurationErrors that name the key, dotted.
absl::StatusOr<JobData> ParseJobData(const Json& data);
// Of the same; the defaults where the job has no data.
absl::StatusOr<DataOptions> ParseDataOptions(const Json& data);
// All files of all splits, by key, paths as the job has them.
std::vector<std::pair<std::string, std::string>> FilesOf(const JobData& data);

// Where two resolved jobs train on other examples, or in another order: the key and what each has
// there. Files count by their digest where both jobs have it, else by their path. A run that began
// with the one cannot go on with the other.
struct TrainingDifference {
  std::string key, before, now;
};
std::optional<TrainingDifference> DifferenceInTraining(const Json& before, const Json& now);

// Where a split of job["data"] has "columns" and no "order", the order in which they stand.
void NoteColumnOrder(OrderedJson* job);

}  // namespace muster::data
