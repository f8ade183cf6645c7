// Open the splits of each format except the arrays. Listed in common/data/job/formats.cc.
#pragma once

#include "common/data/job/formats.h"

namespace muster::data {

absl::StatusOr<OpenSplit> OpenCsv(const DataSplit& split, const std::string& folder);
absl::StatusOr<OpenSplit> OpenImageFolder(const DataSplit& split, const std::string& folder);
absl::StatusOr<OpenSplit> OpenNpz(const DataSplit& split, const std::string& folder);
absl::StatusOr<OpenSplit> OpenTar(const DataSplit& split, const std::string& folder);
absl::StatusOr<OpenSplit> OpenTfRecord(const DataSplit& split, const std::string& folder);
absl::StatusOr<OpenSplit> OpenUnpairedImages(const DataSplit& split, const std::string& folder);
absl::StatusOr<OpenSplit> OpenWindows(const DataSplit& split, const std::string& folder);

// Returns the files that the split's paths match, in order. Returns a DataError where there are
// none.
absl::StatusOr<std::vector<std::string>> FilesOfPaths(const DataSplit& split,
                                                      const std::string& folder);

enum class CacheOf {
  kPart,  // The part of the files' examples that the split takes.
  kAll,   // All examples of the files.
};
// Returns the dataset behind the split's cache, where the job has one. `key` distinguishes datasets
// made of the same split. The cache also depends on the split's settings and on the names, sizes
// and times of its files. Must be below everything that depends on the epoch.
absl::StatusOr<DatasetPtr> Cached(const DataSplit& split, const std::string& folder,
                                  const std::string& key, CacheOf of, DatasetPtr dataset);

// Returns a dataset with one array for each column and one row for each example. Returns a
// DataError where their lengths differ.
absl::StatusOr<OpenSplit> FromArrays(const DataSplit& split, std::vector<at::Tensor> arrays);

// Returns the dataset with only the components that the columns name. `components` lists all
// components of the dataset, under the names that DataColumn::source uses.
OpenSplit ChooseColumns(const DataSplit& split, DatasetPtr dataset,
                        const std::vector<Column>& components);

}  // namespace muster::data
