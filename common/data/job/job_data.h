// Parses and checks the section "data" of a job, without opening files. docs/data.md has the
// reference for users. A split is the training, validation or test data of a job. formats.h has the
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
  // files, such as an array in an npz file. The kind of source depends on the format
  // (DataFormat::source). If a column consists of several parts, `parts` lists them, and `source`
  // joins their names for messages.
  std::string source;
  std::vector<std::string> parts;
  // For formats that store bytes without a type: the meaning of the bytes, such as "image".
  std::string decode;
  // The type of the tensors. "": the file's type, but float32 for float64 and for scaled integers.
  std::string dtype;
  // Values are multiplied by `multiplied`, then divided by `divided`, as the key "scale" says.
  double multiplied = 1, divided = 1;
  std::optional<std::vector<int64_t>> shape;  // The shape of one example. One dimension may be -1.
  bool picture = false;                       // True if the column is decoded from image files.
};

// How pictures are converted to tensors of one shape.
struct ImageOptions {
  int channels = 3;               // 3 for RGB, or 1 for grey.
  int64_t height = 0, width = 0;  // 0 keeps the files' size, which must be the same for all files.
  // If above 0, the picture is resized so that its shorter side has this length, and the centre is
  // cropped to height x width. If 0, the whole picture is resized to height x width.
  int64_t shorter_side = 0;
};

struct CsvOptions {
  bool header = true;
  char delimiter = ',';
};

// How a file of tokens is divided into windows.
struct WindowOptions {
  std::string dtype = "uint8";  // The type of a token in the file: uint8, uint16 or uint32.
  // In tokens: the length of a window, and the distance between the starts of two windows.
  int64_t length = 0, stride = 0;
  // If true, a second component "y" has, for each token of "x", the next token of the file.
  bool targets = true;
};

// Where a split's examples are cached. The cache stores examples as they are read, before they are
// shuffled and converted.
struct CacheOptions {
  enum class Kind { kNone, kMemory, kDisk };
  Kind kind = Kind::kNone;
  std::string folder;  // For kDisk, the path as in the job.
};

struct DataSplit {
  enum class Kind { kNone, kProgram, kFiles };
  Kind kind = Kind::kNone;
  std::string key;  // The dotted key of the split in the job, such as "data.train".
  std::string format;
  std::vector<DataColumn> columns;  // In the order of a batch's components.
  // The files as in the job, for formats with the sources kFrom and kParts. The members from
  // `image` to `examples` belong to keys that only some formats have.
  std::vector<std::string> paths;
  ImageOptions image;
  std::vector<Transform> transforms;  // Transforms of the columns with pictures.
  // The options of MixUp (muster/transform_steps.h), which is applied after the transforms. If
  // `classes` is 0, the files determine the number of classes.
  std::optional<MixUpOptions> mixup;
  CsvOptions csv;
  WindowOptions windows;
  // For the format unpaired_images: the number of examples. 0 means the number of pictures in the
  // smaller folder.
  int64_t examples = 0;
  bool shuffle = false;
  // The part of the files' examples that the split uses, in the files' order. If `fraction` is set,
  // the split uses this range of all examples, where 0 is the start and 1 is the end. Otherwise,
  // the split leaves out the first `skip` examples and uses the next `take` examples. If `take` is
  // absent, the split uses all examples after the first `skip` examples.
  int64_t skip = 0;
  std::optional<int64_t> take;
  std::optional<std::pair<double, double>> fraction;
  bool is_part() const { return skip > 0 || take || fraction; }
  CacheOptions cache;
  bool skip_damaged = false;  // True if "on_error" is "skip".
};

// How the training split is distributed to replicas (docs/data.md, "Sharding").
enum class AutoShard { kData, kFile, kOff };
inline constexpr std::string_view kAutoShardNames[] = {"data", "file", "off"};

// Options for loading examples. They come from the keys of "data" that are not splits. The options
// also apply to datasets that the program makes.
struct DataOptions {
  std::optional<int> threads, prefetch;  // nullopt means "auto".
  bool skip_damaged = false;             // True if "on_error" is "skip".
  AutoShard auto_shard = AutoShard::kData;
};

// One DataSplit for each value of Split. If the job has no "data", the kind of each DataSplit is
// kProgram: the program makes the datasets.
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
  // Reads the keys of this format into *split, and completes the columns. Reports errors to
  // *object.
  void (*read)(JsonObject* object, DataSplit* split);
  // Returns the files of a split as pairs of the dotted key and the path in the job.
  std::vector<std::pair<std::string, std::string>> (*files)(const DataSplit& split);
};
const std::vector<DataFormat>& DataFormats();
// Returns true if a split of this format can have several files, each with several examples.
bool ShardsByFile(std::string_view format);

// Parses the job's "data". Returns a ConfigurationError that names the dotted key of a wrong value.
absl::StatusOr<JobData> ParseJobData(const Json& data);
// Parses the options of the job's "data". Returns the defaults if the job has no data.
absl::StatusOr<DataOptions> ParseDataOptions(const Json& data);
// Returns all files of all splits as pairs of the dotted key and the path in the job.
std::vector<std::pair<std::string, std::string>> FilesOf(const JobData& data);

// A difference between two jobs (with all defaults filled in) that makes training use different
// examples or another order. A run of one of the jobs cannot resume with the other job.
struct TrainingDifference {
  std::string key, before, now;
};
std::optional<TrainingDifference> DifferenceInTraining(const Json& before, const Json& now);

// Adds the key "order" to each split of job["data"] that has "columns" but no "order". The value
// lists the columns' names in the order of the job file's text.
void NoteColumnOrder(OrderedJson* job);

}  // namespace muster::data
