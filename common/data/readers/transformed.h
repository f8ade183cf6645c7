// Applies the transforms of a split (training, validation or test data) to the pictures of a
// reader's dataset. Internal to common/data.
#pragma once

#include <memory>
#include <vector>

#include "common/data/readers/image_tensor.h"

namespace muster::data {

struct TransformedColumn {
  size_t component = 0;
  uint64_t salt = 0;  // The salt of the column's random numbers.
};

// Returns the dataset with transformed pictures. The split's cache stores the untransformed
// pictures. Returns `dataset` itself if the split has no transforms. Returns a DataError if the
// first picture does not suit the transforms. REQUIRES: the dataset's columns are set.
absl::StatusOr<std::shared_ptr<ReadDataset>> Transformed(
    std::shared_ptr<ReadDataset> dataset, const DataSplit& split, const std::string& folder,
    const std::vector<TransformedColumn>& pictures);

}  // namespace muster::data
