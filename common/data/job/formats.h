// The readers of the job's data files, by format: the part of job_data.h that needs LibTorch.
#pragma once

#include <string>
#include <vector>

#include "common/data/job/job_data.h"
#include "muster/data.h"

namespace muster::data {

// Immutable once it is open.
struct OpenSplit {
  // All examples of the files, in the order and with the values of the files.
  DatasetPtr dataset;
  std::vector<Column> columns;  // The columns of the dataset's components.
};

struct FormatReader {
  std::string_view name;  // As in DataFormats().
  // Opens the split. Relative paths start at `folder`. Errors name the key and the file.
  absl::StatusOr<OpenSplit> (*open)(const DataSplit& split, const std::string& folder);
};
const std::vector<FormatReader>& FormatReaders();

// Returns the split with only those of its files, sorted by name, whose number k has k mod `shares`
// == `share`. Returns a ConfigurationError where there are fewer files than shares. REQUIRES:
// ShardsByFile(split.format).
absl::StatusOr<DataSplit> ShareOf(const DataSplit& split, const std::string& folder, int share,
                                  int shares);

// Opens a split as the job's data describes it: its part of the files' examples, shuffled if
// requested, with values and shapes converted. The columns are those after the conversion.
// REQUIRES: split.kind is kFiles.
absl::StatusOr<OpenSplit> OpenJobSplit(const DataSplit& split, const std::string& folder);

}  // namespace muster::data
