// The thread that writes the log (common/base/logging.h): who logs waits for nobody, under whatever
// lock it does so, and a terminal or a pipe that nobody reads holds up nobody. What cannot be
// written is kept, the newest kLogLines lines; how many are missing is said where they would be.
//
// Any thread may call these.
#pragma once

#include <cstddef>
#include <string>

namespace muster {

inline constexpr size_t kLogLines = 4096;

// Until all that was logged is written; before _exit. False where stderr has taken nothing for half
// a second: what is left is lost if the process ends.
bool FlushLog();
// The same in a signal handler, for a second at most.
void FlushLogInHandler();

// `text` as it is, between two lines of the log. SetLogHooks' functions are called around it, also
// around an empty one.
void WriteByLog(std::string text);

}  // namespace muster
