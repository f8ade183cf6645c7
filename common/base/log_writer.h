// The thread that writes the log (common/base/logging.h) to stderr. A caller that logs never
// blocks, even if nobody reads stderr, so a caller may hold locks. At most kLogLines lines wait for
// the thread. If more lines arrive, the oldest lines are dropped, and one line in their place says
// how many were dropped.
//
// All functions are thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

inline constexpr size_t kLogLines = 4096;

// Blocks until all logged lines are written. Gives up and returns false if stderr accepts no line
// for half a second, or after 5 seconds in total. Called before _exit.
bool FlushLog();
// As FlushLog, for signal handlers. Blocks for at most one second.
void FlushLogInHandler();

// Queues `text`, which the thread writes unchanged between two log lines. The thread calls the
// functions of SetLogHooks before and after `text`, even if `text` is empty.
void WriteByLog(std::string text);
// Writes `text` to stderr and returns after the last byte, or at an error. Called by the thread and
// by the functions of SetLogHooks.
void WriteStderr(std::string_view text);

}  // namespace muster
