// The thread that writes the log (common/base/logging.h). Callers that log never wait, whatever
// locks they hold. A terminal or pipe without a reader blocks no caller. The newest kLogLines
// unwritten lines are kept. A line in their place gives the number of dropped lines.
//
// All functions are thread-safe.
#pragma once

#include <cstddef>
#include <string>

namespace muster {

inline constexpr size_t kLogLines = 4096;

// Blocks until everything logged is written. Call it before _exit. Returns false if stderr has
// accepted nothing for half a second. The rest is then lost if the process ends.
bool FlushLog();
// The same in a signal handler, for one second at most.
void FlushLogInHandler();

// Writes `text` unchanged between two lines of the log. The functions of SetLogHooks are called
// around it, even if it is empty.
void WriteByLog(std::string text);

}  // namespace muster
