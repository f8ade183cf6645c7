// Rows of an embedding table, or their gradients, in one contiguous buffer: the format of transfers
// and of copied chunks. It holds the keys (each as the bytes of two elements), then [keys][width].
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "muster/status.h"

namespace muster {

std::vector<float> PackRows(std::span<const uint64_t> keys, std::span<const float> rows);

struct PackedRows {
  std::vector<uint64_t> keys;
  std::span<const float> rows;  // Points into the unpacked buffer.
};
// Returns a ConfigurationError if the size does not match a whole number of rows.
absl::StatusOr<PackedRows> UnpackRows(std::span<const float> packed, int64_t width);

}  // namespace muster
