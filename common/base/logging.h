// The process-wide log, based on spdlog: one line per event on stderr, `12:34:56.789 I worker 1 |
// message`. Call InitLogging once in main, before any thread starts. The Log* functions are
// thread-safe.
#pragma once

#include <spdlog/spdlog.h>

#include <functional>
#include <string>

namespace muster {

// If set to 0, `who` is left out, because the reader of the output adds it (`muster launch`).
inline constexpr const char* kLogTaskVariable = "MUSTER_LOG_TASK";

// `who` is the task ("worker 1") or the program's name. Empty leaves it out. MUSTER_LOG_LEVEL
// (trace, debug, info, warn, error) sets the level, default info.
void InitLogging(const std::string& who);

// Sets functions that are called before and after each line is written, by one thread at a time. A
// progress bar on the same terminal is removed before the line and redrawn after it. Empty
// functions remove the hooks.
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
