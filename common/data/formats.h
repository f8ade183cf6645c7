// What reads the files of a job's data, by format; the half that needs LibTorch of job_data.h.
#pragma once

#include <string>
#include <vector>

#include "common/data/job_data.h"
#include "muster/data.h"

namespace muster::data {

// Immutable once it is open.
struct OpenSplit {
  DatasetPtr dataset;           // all examples of the files, in their order, as the files have them
  std::vector<Column> columns;  // of the dataset's components
};

struct FormatReader {
  std::string_view name;  // as in DataFormats()
  // `folder`: where relative paths are looked up. Errors name the key and the file.
  absl::StatusOr<OpenSplit> (*open)(const DataSplit& split, const std::string& folder);
};
const std::vector<FormatReader>& FormatReaders();

// The split with those of its files alone whose number k has k mod `shares` == `share`, by name. A
// ConfigurationError where there are fewer files than shares. REQUIRES: ShardsByFile(split.format).
absl::StatusOr<DataSplit> ShareOf(const DataSplit& split, const std::string& folder, int share,
                                  int shares);

// A dataset as the job's data describes it: its part of the files' examples, shuffled where it is
// to be, values and shapes converted; with the columns as they are then. REQUIRES: split.kind is
// kFiles.
absl::StatusOr<OpenSplit> OpenJobSplit(const DataSplit& split, const std::string& folder);

}  // namespace muster::data
