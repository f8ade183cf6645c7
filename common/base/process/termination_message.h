// The final message of a process in a container. Kubernetes keeps the content of the container's
// termination log and shows it in the pod's status.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

// The environment variable with the path of the termination log. A container needs this variable if
// its terminationMessagePath is not the default.
inline constexpr const char* kTerminationLogVariable = "MUSTER_TERMINATION_LOG";
// The kubelet reads at most this many bytes. Longer messages are cut at a character boundary.
inline constexpr size_t kTerminationMessageBytes = 4096;

// Returns the path in kTerminationLogVariable, or /dev/termination-log. Called once, from main.
std::string TerminationLog();

// Replaces the content of the file `path` by `message`. Does nothing if `path` is no regular file,
// or if this process may not write to it. Never creates the file, because outside a container the
// path does not exist. Ignores errors. Never blocks.
void WriteTerminationMessage(const std::string& path, std::string_view message);

}  // namespace muster
