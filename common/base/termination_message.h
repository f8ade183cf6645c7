// The last words of a process for whoever started its container: Kubernetes keeps what is in the
// container's termination log and shows it in the pod's status.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

// Names another file than Kubernetes' default, for a container with a terminationMessagePath of its
// own.
inline constexpr const char* kTerminationLogVariable = "MUSTER_TERMINATION_LOG";
// More than this is cut off, at the end of a character: the kubelet reads no more.
inline constexpr size_t kTerminationMessageBytes = 4096;

// The file that the variable names, else /dev/termination-log. For main, which reads it once.
std::string TerminationLog();

// Replaces the contents of `path` by `message`, where that is a regular file that this process may
// write to. It is never made (outside a container there is none), and nothing here fails or blocks.
void WriteTerminationMessage(const std::string& path, std::string_view message);

}  // namespace muster
