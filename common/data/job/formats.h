// The readers of the job's data files. Each format has one reader. Unlike job_data.h, they need
// LibTorch.
#pragma once

#include <string>
#include <vector>

#include "common/data/job/job_data.h"
#include "muster/data.h"

namespace muster::data {

// An opened split. Immutable.
struct OpenSplit {
  // FormatReader::open returns all examples of the files, in the files' order and with the files'
  // values. OpenJobSplit returns the split's converted examples.
  DatasetPtr dataset;
  std::vector<Column> columns;  // The columns of the dataset, one for each component.
};

struct FormatReader {
  std::string_view name;  // A name of DataFormats().
  // Opens the split. Relative paths are relative to `folder`. Errors name the key and the file.
  absl::StatusOr<OpenSplit> (*open)(const DataSplit& split, const std::string& folder);
};
const std::vector<FormatReader>& FormatReaders();

// Returns the split with only a part of its files. Of the files sorted by name, keeps file k if k
// mod `shares` == `share`. Returns a ConfigurationError if there are fewer files than shares.
// REQUIRES: ShardsByFile(split.format).
absl::StatusOr<DataSplit> ShareOf(const DataSplit& split, const std::string& folder, int share,
                                  int shares);

// Opens a split as the job's data describes it. The dataset is the split's part of the files'
// examples, shuffled if requested, with converted values and shapes. The columns describe the
// converted examples. REQUIRES: split.kind is kFiles.
absl::StatusOr<OpenSplit> OpenJobSplit(const DataSplit& split, const std::string& folder);

}  // namespace muster::data
