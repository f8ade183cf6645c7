// The limit for the time that training steps wait for input.
#pragma once

namespace muster {

// A fraction of the time of training steps. If the steps wait for input for at least this fraction
// of their time, the chief's log and the launcher's report advise how to load data faster.
inline constexpr double kMuchInputWait = 0.1;

}  // namespace muster
