// Reports why a process ends without returning from main: a fatal signal, or an exception that
// nothing catches (for example, on a thread that the program started).
#pragma once

#include <functional>
#include <string>

#include "common/base/clock.h"

namespace muster {

// Installs handlers for SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT. They write one line to stderr,
// "worker 1 (pid 12): killed by SIGSEGV (a bad address)", and then restore the previous action.
// Call once, from main's thread.
void NameFatalSignals(const std::string& who);

// Sets the function that reports an uncaught exception. std::terminate calls `tell` on a separate
// thread, with one sentence about the exception. After `tell` has returned, or after `limit`, the
// sentence is logged and the process ends with exit code 1 (the program failed). A null `tell`
// removes the function. Blocks while the previous function is running.
void OnUncaught(std::function<void(const std::string& why)> tell, Duration limit);

}  // namespace muster
