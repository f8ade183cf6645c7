#include "common/push_pull/rows/packed_rows.h"

#include <fmt/format.h>

#include <algorithm>

namespace muster::push_pull {

std::vector<float> PackRows(std::span<const uint64_t> keys, std::span<const float> rows) {
  std::vector<float> packed(2 * keys.size() + rows.size());
  // Copies bits without any float operation, which could change them.
  std::copy_n(reinterpret_cast<const char*>(keys.data()), keys.size_bytes(),
              reinterpret_cast<char*>(packed.data()));
  std::copy(rows.begin(), rows.end(), packed.begin() + static_cast<int64_t>(2 * keys.size()));
  return packed;
}

absl::StatusOr<PackedRows> UnpackRows(std::span<const float> packed, int64_t width) {
  const auto each = static_cast<size_t>(2 + width);
  if (packed.size() % each != 0)
    return ConfigurationError(
        fmt::format("{} elements are no whole number of rows of width {}", packed.size(), width));
  PackedRows rows;
  rows.keys.resize(packed.size() / each);
  std::copy_n(reinterpret_cast<const char*>(packed.data()), rows.keys.size() * sizeof(uint64_t),
              reinterpret_cast<char*>(rows.keys.data()));
  rows.rows = packed.subspan(2 * rows.keys.size());
  return rows;
}

}  // namespace muster::push_pull
