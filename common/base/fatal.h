// A process's last words where it cannot return from main: an exception that nobody catches (on a
// thread that the program started), or a fatal signal.
#pragma once

#include <functional>
#include <string>

#include "common/base/clock.h"

namespace muster {

// SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT write one line to stderr, "worker 1 (pid 12): killed
// by SIGSEGV (a bad address)", and then take their course. Once, from main's thread.
void NameFatalSignals(const std::string& who);

// From now on `tell` is called when std::terminate is, on a thread of its own, with one sentence.
// When it returns, or after `limit`, that sentence is logged and the process ends with exit code 1
// (the program failed). Null: nobody is told. Waits while the one before is running.
void OnUncaught(std::function<void(const std::string& why)> tell, Duration limit);

}  // namespace muster
