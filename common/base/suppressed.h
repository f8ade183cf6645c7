// Text for the end of a log line: the number of lines that a LogRateLimiter has suppressed.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

// Returns a text such as " (and 3 more since the last line)". `suppressed` is the number that
// LogRateLimiter::Take stored in `*suppressed`. Returns an empty text if the number is 0 or if no
// memory is left.
std::string SuppressedText(int64_t suppressed) noexcept;

}  // namespace muster
