// The text that a log line ends with if a LogRateLimiter suppressed lines before it.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

// Returns for example " (and 3 more since the last line)". `suppressed` is the number that
// LogRateLimiter::Take stored in `*suppressed`. Returns an empty text if the number is 0 or if no
// memory is left.
std::string SuppressedText(int64_t suppressed) noexcept;

}  // namespace muster
