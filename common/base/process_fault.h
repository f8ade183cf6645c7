// Faults of a process's own device, driver or host: the process cannot go on, but another one can
// take its place. Neither the program's mistake nor a lost peer: nothing of this process's state is
// to be trusted, and the job must not end because of it.
//
// What CUDA and NCCL report is sorted here by number, without CUDA, so that every host can test it.
#pragma once

#include <string>
#include <string_view>

#include "muster/status.h"

namespace muster {

enum class FaultCause {
  kNone,           // the program's, or the caller's: as if there were no device
  kConfiguration,  // no driver that fits, no such device, the wrong arguments: 2
  kPeer,           // another rank, or the way to it: this process goes on: 138
  kProcess,        // the device or its driver: this process ends with 138
  kUncertain,      // a fault of the device, or of the program: likewise, but not for ever
};

// cudaError_t. Out of memory and failed assertions of a kernel are the program's.
FaultCause FaultOfCuda(int error);
// ncclResult_t, and what ncclGetLastError says.
FaultCause FaultOfNccl(int result, std::string_view last_error);
// An exception of LibTorch that has no number: "CUDA error: ...", "CUDNN_STATUS_...", ...
FaultCause FaultOfText(std::string_view what);

// kUnavailable (138), marked. Copies keep the mark, StatusFor and the wire do not.
absl::Status ProcessFault(std::string_view message, bool uncertain);
bool IsProcessFault(const absl::Status& status);
// The maker of `kind`. kNone gives a ProgramError.
absl::Status FaultStatus(FaultCause kind, std::string_view message);

// An uncertain fault of a process that has been started again so often is the program's: it would
// come back for ever. Of one that has not, it is the device's or the host's from then on. Any other
// status as it is.
inline constexpr int kUncertainFaults = 3;
absl::Status JudgeFault(const absl::Status& status, int restarts);

}  // namespace muster
