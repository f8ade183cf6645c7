// Runs a function in a child process. For functions that load a library that may hang or crash.
#pragma once

#include <functional>
#include <string>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::launcher {

// Returns the result of `make`, which runs in the child. If the child crashes, returns the part
// that it had written. If `make` takes longer than `timeout`, kills the child and returns
// DeadlinePassed. Call it before the process starts threads that `make` depends on.
absl::StatusOr<std::string> OutputOfChild(const std::function<std::string()>& make,
                                          Duration timeout);

}  // namespace muster::launcher
