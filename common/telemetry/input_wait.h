// The limit above which waiting for input is reported.
#pragma once

namespace muster {

// From this share of the steps' time on, the chief's log and the launcher's report give advice.
inline constexpr double kMuchInputWait = 0.1;

}  // namespace muster
