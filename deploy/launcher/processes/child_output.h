// Runs a function in a child process. Use this for a function that loads a library that may hang or
// crash.
#pragma once

#include <functional>
#include <string>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::launcher {

// Forks a child, which runs `make` and sends the result to this process. Returns the result. If the
// child crashes while it sends the result, returns the bytes that have arrived. If `make` takes
// longer than `timeout`, kills the child and returns DeadlinePassed. The child has only the calling
// thread, so `make` must not need other threads of this process.
absl::StatusOr<std::string> OutputOfChild(const std::function<std::string()>& make,
                                          Duration timeout);

}  // namespace muster::launcher
