// Process-wide log, spdlog underneath: one line an event on stderr, `12:34:56.789 I worker 1 |
// message`. Call InitLogging once in main, before any thread starts; Log* may be called from any
// thread.
#pragma once

#include <spdlog/spdlog.h>

#include <functional>
#include <string>

namespace muster {

// With value 0: `who` is left out, because whoever reads the output says it (`muster launch`).
inline constexpr const char* kLogTaskVariable = "MUSTER_LOG_TASK";

// `who` is the task ("worker 1") or the program's name; empty leaves it out. MUSTER_LOG_LEVEL
// (trace, debug, info, warn, error) sets the level, default info.
void InitLogging(const std::string& who);

// Called around the writing of each line, by one thread at a time: a progress bar on the same
// terminal is taken away before the line and put back after it. Empty functions end that.
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
