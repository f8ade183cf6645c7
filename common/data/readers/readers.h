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

enum class CacheOf {
  kPart,  // that of the files' examples which the split takes
  kAll,   // all of them
};
// The dataset behind the split's cache, where the job has one. `key` names what it holds among what
// is made of the same split; all else that it depends on are the split's settings, and the names,
// sizes and times of its files. Belongs below whatever depends on the epoch.
absl::StatusOr<DatasetPtr> Cached(const DataSplit& split, const std::string& folder,
                                  const std::string& key, CacheOf of, DatasetPtr dataset);

// An array for each column, with an example in each row. A DataError where their lengths differ.
absl::StatusOr<OpenSplit> FromArrays(const DataSplit& split, std::vector<at::Tensor> arrays);

// The dataset with the components that the columns name: `components` are all that it has, with the
// names that columns have them by in `source`.
OpenSplit ChooseColumns(const DataSplit& split, DatasetPtr dataset,
                        const std::vector<Column>& components);

}  // namespace muster::data
