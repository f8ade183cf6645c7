// The functions that open a split (training, validation or test data). Each function Open... is for
// one format. common/data/job/formats.cc lists these functions, and contains the functions for the
// formats of arrays.
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

// Returns the files that match the split's paths, in order. Returns a DataError if no file matches.
absl::StatusOr<std::vector<std::string>> FilesOfPaths(const DataSplit& split,
                                                      const std::string& folder);

// The examples that a cache stores.
enum class CacheOf {
  kPart,  // Only the split's part of the files' examples.
  kAll,   // All examples of the files.
};
// Returns `dataset` with the split's cache, if the split has a cache. `key` distinguishes several
// datasets of the same split. A disk cache is reused only if the split's settings and the names,
// sizes and times of its files have not changed. REQUIRES: the examples of `dataset` do not depend
// on the epoch.
absl::StatusOr<DatasetPtr> Cached(const DataSplit& split, const std::string& folder,
                                  const std::string& key, CacheOf of, DatasetPtr dataset);

// Returns a dataset of `arrays`. Each array is a column, and has one row for each example. Returns
// a DataError if the arrays' lengths differ.
absl::StatusOr<OpenSplit> FromArrays(const DataSplit& split, std::vector<at::Tensor> arrays);

// Returns the dataset with only the components that the split's columns name in DataColumn::source.
// `components` lists all components of the dataset.
OpenSplit ChooseColumns(const DataSplit& split, DatasetPtr dataset,
                        const std::vector<Column>& components);

}  // namespace muster::data
