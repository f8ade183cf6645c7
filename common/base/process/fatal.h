// Reports why a process ends without returning from main. The cause is a fatal signal, or an
// exception that no code catches, for example on a thread of the user's program.
#pragma once

#include <functional>
#include <string>

#include "common/base/clock.h"

namespace muster {

// Installs handlers for SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT. A handler writes one line to
// stderr, such as "worker 1 (pid 12): killed by SIGSEGV (a bad address)", where "worker 1" is
// `who`. The handler then restores the signal's previous action and raises the signal again. Called
// once, on main's thread.
void NameFatalSignals(const std::string& who);

// Sets the function that reports an uncaught exception. The handler of std::terminate calls `tell`
// on a new thread, with one sentence about the exception. The handler waits until `tell` has
// returned, but at most for `limit`. Then the handler logs the sentence and ends the process with
// exit code 1 (the program failed). A null `tell` removes the function. OnUncaught blocks while the
// function of an earlier call is running.
void OnUncaught(std::function<void(const std::string& why)> tell, Duration limit);

}  // namespace muster
