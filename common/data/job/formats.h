// The readers of the job's data files. Each format has one reader. A split is the training,
// validation or test data of a job (DataSplit in job_data.h). Unlike job_data.h, this header needs
// LibTorch.
#pragma once

#include <string>
#include <vector>

#include "common/data/job/job_data.h"
#include "muster/data.h"

namespace muster::data {

// An opened split. Immutable.
struct OpenSplit {
  // FormatReader::open sets `dataset` to all examples of the files, in the files' order, without
  // conversions. OpenJobSplit sets it to the examples of the split, with converted values.
  DatasetPtr dataset;
  std::vector<Column> columns;  // The columns of the dataset, one for each component.
};

struct FormatReader {
  std::string_view name;  // One of the names in DataFormats().
  // Opens the split. Relative paths are relative to `folder`. Errors name the key and the file.
  absl::StatusOr<OpenSplit> (*open)(const DataSplit& split, const std::string& folder);
};
const std::vector<FormatReader>& FormatReaders();

// Returns the split with a part of its files. ShareOf numbers the files in the order of their
// names, from 0. The part consists of the files with a number k for which k mod `shares` ==
// `share`. Returns a ConfigurationError if there are fewer files than `shares`. REQUIRES:
// ShardsByFile(split.format).
absl::StatusOr<DataSplit> ShareOf(const DataSplit& split, const std::string& folder, int share,
                                  int shares);

// Opens a split as the job's "data" describes it. The dataset has the split's part of the files'
// examples, with converted values and shapes. The dataset is shuffled if `shuffle` of the split is
// true. The columns describe the converted examples. REQUIRES: split.kind is kFiles.
absl::StatusOr<OpenSplit> OpenJobSplit(const DataSplit& split, const std::string& folder);

}  // namespace muster::data
