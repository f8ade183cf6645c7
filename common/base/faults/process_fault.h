// Process faults: failures of this process's device, driver or host. The process cannot continue,
// because its state is not reliable, but a restarted process can. A process fault is neither an
// error of the program nor the loss of a peer, and it must not end the job.
//
// The functions classify errors of CUDA and NCCL by number. They do not need CUDA, so tests run on
// every host.
#pragma once

#include <string>
#include <string_view>

#include "muster/status.h"

namespace muster {

enum class FaultCause {
  kNone,           // An error of the program or the caller.
  kConfiguration,  // No suitable driver, no such device, or wrong arguments. Exit code 2.
  kPeer,     // Another rank or the connection to it failed. This process continues. Exit code 138.
  kProcess,  // The device or its driver failed. This process ends with exit code 138.
  kUncertain,  // Either kProcess or an error of the program. See ClassifyFault.
};

// Classifies a cudaError_t. Out of memory and failed assertions of a kernel are errors of the
// program.
FaultCause FaultOfCuda(int error);
// Classifies a ncclResult_t. `last_error` is the text of ncclGetLastError.
FaultCause FaultOfNccl(int result, std::string_view last_error);
// Classifies a LibTorch exception without an error number by its text, such as "CUDA error: ..." or
// "CUDNN_STATUS_...".
FaultCause FaultOfText(std::string_view what);

// Returns a status kUnavailable (exit code 138) with a payload that marks it as a process fault.
// Copies of the status keep the payload. StatusFor and messages to other processes lose it.
absl::Status ProcessFault(std::string_view message, bool uncertain);
bool IsProcessFault(const absl::Status& status);
// Returns the status for `kind`. For kNone this is a ProgramError.
absl::Status FaultStatus(FaultCause kind, std::string_view message);

// Decides whether an uncertain fault is an error of the program. If the process was restarted at
// least kUncertainFaults times, returns a ProgramError, because the fault would recur forever.
// Otherwise returns a process fault that is not uncertain. Returns other statuses unchanged.
inline constexpr int kUncertainFaults = 3;
absl::Status ClassifyFault(const absl::Status& status, int restarts);

}  // namespace muster
