// How much waiting for input is worth a word.
#pragma once

namespace muster {

// From this share of the steps' time on, the chief's log and the launcher's report say what to do
// about it.
inline constexpr double kMuchInputWait = 0.1;

}  // namespace muster
