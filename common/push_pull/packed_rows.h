// Rows of an embedding table, or their gradients, in one piece of memory: how they travel, and how
// a chunk of a table is copied. Keys (each as two elements, as it lies in memory), then
// [keys][width].
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "muster/status.h"

namespace muster {

std::vector<float> PackRows(std::span<const uint64_t> keys, std::span<const float> rows);

struct PackedRows {
  std::vector<uint64_t> keys;
  std::span<const float> rows;  // of what was unpacked
};
// ConfigurationError where the size is that of no number of rows.
absl::StatusOr<PackedRows> UnpackRows(std::span<const float> packed, int64_t width);

}  // namespace muster
