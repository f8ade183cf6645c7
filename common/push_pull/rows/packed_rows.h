// Packs rows of an embedding table, or gradients of rows, into one contiguous buffer. Workers and
// servers send this format. The keys are first. Each key occupies the bytes of two float elements.
// The rows follow, in the shape [keys][width].
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "muster/status.h"

namespace muster::push_pull {

std::vector<float> PackRows(std::span<const uint64_t> keys, std::span<const float> rows);

struct PackedRows {
  std::vector<uint64_t> keys;
  std::span<const float> rows;  // Points into the argument `packed`.
};
// Returns a ConfigurationError if `packed` does not contain a whole number of rows.
absl::StatusOr<PackedRows> UnpackRows(std::span<const float> packed, int64_t width);

}  // namespace muster::push_pull
