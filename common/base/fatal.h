// Reports the end of a process that cannot return from main. The cause is a fatal signal, or an
// exception that nothing catches (on a thread that the program started).
#pragma once

#include <functional>
#include <string>

#include "common/base/clock.h"

namespace muster {

// Installs handlers for SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT. They write one line to stderr,
// "worker 1 (pid 12): killed by SIGSEGV (a bad address)", and then restore the previous action.
// Call once, from main's thread.
void NameFatalSignals(const std::string& who);

// Sets the function that std::terminate calls, on a separate thread, with one sentence. When it
// returns, or after `limit`, the sentence is logged and the process ends with exit code 1 (the
// program failed). Null removes the function. Blocks while the previous function is running.
void OnUncaught(std::function<void(const std::string& why)> tell, Duration limit);

}  // namespace muster
