// Faults of a process's own device, driver or host. The process cannot continue, but a new one can
// take its place. Such a fault is neither an error of the program nor a lost peer. The state of
// this process is not reliable, and the job must not end because of the fault.
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
  kPeer,           // Another rank, or the connection to it. This process continues. Exit code 138.
  kProcess,        // The device or its driver. This process ends with 138.
  kUncertain,      // A fault of the device or of the program. Treated as kProcess, up to a limit.
};

// Takes a cudaError_t. Out of memory and failed assertions of a kernel are errors of the program.
FaultCause FaultOfCuda(int error);
// Takes a ncclResult_t and the text of ncclGetLastError.
FaultCause FaultOfNccl(int result, std::string_view last_error);
// Takes the text of a LibTorch exception without a number: "CUDA error: ...", "CUDNN_STATUS_...",
// ...
FaultCause FaultOfText(std::string_view what);

// Returns kUnavailable (138) with a mark. Copies keep the mark. StatusFor and the wire lose it.
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
