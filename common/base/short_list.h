// Short lists for messages. A list shows only its first items, so it stays short in large jobs.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

namespace muster {

// Returns the end of a list that lacks `count` items: " and 3 more". Returns "" if `count` is 0.
inline std::string AndMore(size_t count) {
  return count == 0 ? "" : fmt::format(" and {} more", count);
}

// Returns "a, b, c". If there are more than `most` items, returns the first `most` items and the
// number of the remaining items: "a, b and 7 more".
inline std::string ShortList(std::span<const std::string> items, size_t most) {
  const size_t shown = std::min(items.size(), most);
  std::string list;
  for (size_t i = 0; i < shown; ++i) list += (i == 0 ? "" : ", ") + items[i];
  return list + AndMore(items.size() - shown);
}

}  // namespace muster
