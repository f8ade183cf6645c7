// Runs a function in a child process, because a library that it loads may hang or crash.
#pragma once

#include <functional>
#include <string>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::launcher {

// Returns the text that `make` returned in the child, or what the child had written when it died.
// Returns DeadlinePassed if it takes longer than `timeout`; the child is killed. Call it before the
// process starts threads that `make` depends on.
absl::StatusOr<std::string> OutputOfChild(const std::function<std::string()>& make,
                                          Duration timeout);

}  // namespace muster::launcher
