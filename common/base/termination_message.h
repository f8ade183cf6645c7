// The final message of a process in a container. Kubernetes keeps the content of the container's
// termination log and shows it in the pod's status.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

// Overrides Kubernetes' default file, for a container with its own terminationMessagePath.
inline constexpr const char* kTerminationLogVariable = "MUSTER_TERMINATION_LOG";
// Longer messages are cut at a character boundary, because the kubelet reads no more.
inline constexpr size_t kTerminationMessageBytes = 4096;

// Returns the file that the variable names, or /dev/termination-log. main calls it once.
std::string TerminationLog();

// Replaces the content of `path` by `message`, if it is a regular file that this process may write
// to. The file is never created, because it does not exist outside a container. Never fails and
// never blocks.
void WriteTerminationMessage(const std::string& path, std::string_view message);

}  // namespace muster
