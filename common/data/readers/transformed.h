// A dataset of a reader, with its pictures transformed. Internal to common/data.
#pragma once

#include <memory>
#include <vector>

#include "common/data/readers/image_tensor.h"

namespace muster::data {

struct TransformedColumn {
  size_t component = 0;
  uint64_t salt = 0;  // Of its random numbers.
};

// Returns `dataset` itself where the split has no transforms. Otherwise the transforms are above
// the split's cache. Returns a DataError where the first picture is too small for them. REQUIRES:
// the dataset's columns are set.
absl::StatusOr<std::shared_ptr<ReadDataset>> Transformed(
    std::shared_ptr<ReadDataset> dataset, const DataSplit& split, const std::string& folder,
    const std::vector<TransformedColumn>& pictures);

}  // namespace muster::data
