// The error message for a task whose copy of an input file differs from the chief's copy.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "common/cluster/verdict.h"

namespace muster {

inline constexpr std::string_view kDigestsPrefix = "digests.";

// Returns the message. `task` is "worker:1". `key` is "digests." followed by the job's key that
// names the file.
inline std::string OtherFile(const std::string& task, std::string_view key) {
  return fmt::format("{} has another file for '{}' than the chief: give all tasks the same files",
                     TaskText(task), key.substr(kDigestsPrefix.size()));
}

}  // namespace muster
