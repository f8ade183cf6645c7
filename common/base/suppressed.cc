#include "common/base/suppressed.h"

#include <fmt/format.h>

#include <new>

namespace muster {

std::string SuppressedText(int64_t suppressed) noexcept {
  if (suppressed == 0) return "";
  try {
    return fmt::format(" (and {} more since the last line)", suppressed);
  } catch (const std::bad_alloc&) {  // Only this text is lost.
    return "";
  }
}

}  // namespace muster
