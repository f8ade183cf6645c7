// The limit for the time that training steps wait for input.
#pragma once

namespace muster {

// A fraction of the time of training steps. If the steps wait for input for at least this fraction,
// the chief's log and the launcher's report give advice on faster data loading.
inline constexpr double kMuchInputWait = 0.1;

}  // namespace muster
