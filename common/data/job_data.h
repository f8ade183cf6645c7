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

namespace muster::data {

// One component of a split's examples. `key` is its dotted place in the job, for messages.
struct DataColumn {
  std::string name, key;
  std::string source;  // what the format makes of it: a file's path, as the job has it
  std::string dtype;   // "": as in the file, floating point of 64 bits as 32
  double multiplied = 1, divided = 1;         // "scale"
  std::optional<std::vector<int64_t>> shape;  // of one example, one -1 allowed
};

struct DataSplit {
  enum class Kind { kNone, kProgram, kFiles };
  Kind kind = Kind::kNone;
  std::string key;  // "data.train"
  std::string format;
  std::vector<DataColumn> columns;  // in the order of a batch's components
  bool shuffle = false;
  // Of the files' examples, in their order: those from `skip` on, `take` of them, or else those of
  // this part of the whole.
  int64_t skip = 0;
  std::optional<int64_t> take;
  std::optional<std::pair<double, double>> fraction;
};

// A split for each Split. kProgram for all of them where the job has no data.
using JobData = std::array<DataSplit, 3>;
inline const DataSplit& SplitOf(const JobData& data, Split split) {
  return data[static_cast<int>(split)];
}

// A format's half that needs no files. To add one: an entry here, in job_data.cc, and what reads
// it, in formats.cc.
struct DataFormat {
  std::string_view name;
  // Reads the keys that are the format's own, and completes or refuses the columns.
  void (*read)(JsonObject* object, DataSplit* split);
  // The files of a split as the job has them, by the dotted key that names each.
  std::vector<std::pair<std::string, std::string>> (*files)(const DataSplit& split);
};
const std::vector<DataFormat>& DataFormats();

// Errors are ConfigurationErrors that name the key, dotted.
absl::StatusOr<JobData> ParseJobData(const Json& data);
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
