// What opens the splits of each format but the arrays'; listed in common/data/formats.cc.
#pragma once

#include "common/data/formats.h"

namespace muster::data {

absl::StatusOr<OpenSplit> OpenCsv(const DataSplit& split, const std::string& folder);
absl::StatusOr<OpenSplit> OpenImageFolder(const DataSplit& split, const std::string& folder);
absl::StatusOr<OpenSplit> OpenNpz(const DataSplit& split, const std::string& folder);
absl::StatusOr<OpenSplit> OpenTar(const DataSplit& split, const std::string& folder);
absl::StatusOr<OpenSplit> OpenTfRecord(const DataSplit& split, const std::string& folder);
absl::StatusOr<OpenSplit> OpenUnpairedImages(const DataSplit& split, const std::string& folder);
absl::StatusOr<OpenSplit> OpenWindows(const DataSplit& split, const std::string& folder);

// The files that the split's paths mean, in their order; a DataError where there are none.
absl::StatusOr<std::vector<std::string>> FilesOfPaths(const DataSplit& split,
                                                      const std::string& folder);

// An array for each column, with an example in each row. A DataError where their lengths differ.
absl::StatusOr<OpenSplit> FromArrays(const DataSplit& split, std::vector<at::Tensor> arrays);

// The dataset with the components that the columns name: `components` are all that it has, with the
// names that columns have them by in `source`.
OpenSplit ChooseColumns(const DataSplit& split, DatasetPtr dataset,
                        const std::vector<Column>& components);

}  // namespace muster::data
