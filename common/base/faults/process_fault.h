// A process fault is a failure of this process's GPU, of the GPU's driver or of the host. The
// process must end, because its state is not reliable. A restarted process can continue, so a
// process fault does not end the job.
//
// The functions take errors of CUDA and NCCL as plain integers. This header therefore needs no
// CUDA, and tests run on every host.
#pragma once

#include <string>
#include <string_view>

#include "muster/status.h"

namespace muster {

enum class FaultCause {
  kNone,           // An error of the program or the caller.
  kConfiguration,  // No suitable driver, no such device, or wrong arguments.
  kPeer,           // Another rank, or the connection to another rank, failed.
  kProcess,        // A process fault.
  kUncertain,      // Either kProcess or kNone. ClassifyFault decides.
};

// Classifies a cudaError_t. Lack of device memory and a failed assertion of a kernel are errors of
// the program (kNone).
FaultCause FaultOfCuda(int error);
// Classifies a ncclResult_t. `last_error` is the text of ncclGetLastError.
FaultCause FaultOfNccl(int result, std::string_view last_error);
// Classifies an exception of LibTorch by its text, such as "CUDA error: ..." or "CUDNN_STATUS_...".
// These exceptions have no error number.
FaultCause FaultOfText(std::string_view what);

// Returns a kUnavailable status (exit code 138) with a payload that marks a process fault. Copies
// of the status keep the payload. StatusFor and messages to other processes lose the payload.
// `uncertain` is true for kUncertain.
absl::Status ProcessFault(std::string_view message, bool uncertain);
bool IsProcessFault(const absl::Status& status);
// Returns the status for `kind`: ProgramError (exit code 1) for kNone, ConfigurationError (2) for
// kConfiguration, PeerLost (138) for kPeer, and ProcessFault (138) for kProcess and kUncertain.
absl::Status FaultStatus(FaultCause kind, std::string_view message);

// Decides whether an uncertain process fault is an error of the program. `restarts` is the number
// of restarts of this task. After fewer than kUncertainFaults restarts, returns a process fault
// that is not uncertain. From kUncertainFaults restarts on, returns a ProgramError, because so many
// process faults of one task are unlikely. If `status` is not an uncertain process fault, returns
// `status` unchanged.
inline constexpr int kUncertainFaults = 3;
absl::Status ClassifyFault(const absl::Status& status, int restarts);

}  // namespace muster
