// Faults of the device, driver or host of this process. The process cannot continue, but a
// restarted one can. Such a fault is neither an error of the program nor the loss of a peer. The
// state of this process is not reliable, and the fault must not end the job.
//
// The functions classify errors of CUDA and NCCL by number. They do not need CUDA, so every host
// can test them.
#pragma once

#include <string>
#include <string_view>

#include "muster/status.h"

namespace muster {

enum class FaultCause {
  kNone,           // An error of the program or the caller.
  kConfiguration,  // No suitable driver, no such device, or wrong arguments. Exit code 2.
  kPeer,     // Another rank failed, or the connection to it. This process continues. Exit code 138.
  kProcess,  // The device or its driver failed. This process ends with exit code 138.
  kUncertain,  // A fault of the device or of the program. Treated as kProcess, up to a limit.
};

// Takes a cudaError_t. Out of memory and failed assertions of a kernel are errors of the program.
FaultCause FaultOfCuda(int error);
// Takes a ncclResult_t and the text of ncclGetLastError.
FaultCause FaultOfNccl(int result, std::string_view last_error);
// Takes the text of a LibTorch exception that carries no error number, such as "CUDA error: ..." or
// "CUDNN_STATUS_...".
FaultCause FaultOfText(std::string_view what);

// Returns kUnavailable (exit code 138) with a payload that marks it as a process fault. Copies keep
// the payload. StatusFor and messages to other processes do not.
absl::Status ProcessFault(std::string_view message, bool uncertain);
bool IsProcessFault(const absl::Status& status);
// Returns the status for `kind`. kNone returns a ProgramError.
absl::Status FaultStatus(FaultCause kind, std::string_view message);

// An uncertain fault of a process that has been restarted kUncertainFaults times counts as an error
// of the program, because it would recur forever. With fewer restarts it counts as a fault of the
// device or host. Other statuses are returned unchanged.
inline constexpr int kUncertainFaults = 3;
absl::Status JudgeFault(const absl::Status& status, int restarts);

}  // namespace muster
