// The process-wide log, based on spdlog: one line per event on stderr, `12:34:56.789 I worker 1 |
// message`. Call InitLogging once in main, before any thread starts. The Log* functions are
// thread-safe.
#pragma once

#include <spdlog/spdlog.h>

#include <functional>
#include <string>

namespace muster {

// An environment variable. If its value is "0", log lines do not contain the task's name. `muster
// launch` sets "0", because `muster launch` itself adds the name to each line.
inline constexpr const char* kLogTaskVariable = "MUSTER_LOG_TASK";

// `who` is the name in each line: the task ("worker 1") or the program. If `who` is empty, lines
// contain no name. MUSTER_LOG_LEVEL (trace, debug, info, warn, error) sets the level. The default
// is info.
void InitLogging(const std::string& who);

// Sets functions that the log's thread calls before and after it writes a line. A progress bar
// removes itself in `before` and draws itself again in `after`. Empty functions remove the hooks.
void SetLogHooks(std::function<void()> before, std::function<void()> after);

template <typename... Args>
void LogDebug(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::debug(format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogInfo(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::info(format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogWarning(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::warn(format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogError(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::error(format, std::forward<Args>(args)...);
}

}  // namespace muster
