// The thread that writes the log (common/base/logging.h) to stderr. Callers that log never block,
// even if nobody reads the terminal or the pipe. They may therefore hold locks. Up to kLogLines
// lines wait to be written. Beyond that, the oldest ones are dropped, and a line in their place
// gives their number.
//
// All functions are thread-safe.
#pragma once

#include <cstddef>
#include <string>

namespace muster {

inline constexpr size_t kLogLines = 4096;

// Blocks until all logged lines are written. Called before _exit. Gives up and returns false if
// stderr has accepted nothing for half a second.
bool FlushLog();
// As FlushLog, for signal handlers. Blocks for at most one second.
void FlushLogInHandler();

// Writes `text` unchanged between two lines of the log. Calls the functions of SetLogHooks before
// and after it, even if `text` is empty.
void WriteByLog(std::string text);

}  // namespace muster
