// The limit above which Muster reports that steps wait for input.
#pragma once

namespace muster {

// A fraction of the steps' time. If steps wait for input for at least this fraction, the chief's
// log and the launcher's report give advice.
inline constexpr double kMuchInputWait = 0.1;

}  // namespace muster
