#include "common/base/faults/process_fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "absl/strings/cord.h"

namespace muster {
namespace {

constexpr char kMark[] = "muster/process-fault";

bool IsIn(int number, std::initializer_list<int> numbers) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

bool Has(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [text](std::string_view part) {
    return text.find(part) != std::string_view::npos;
  });
}

}  // namespace

// The numbers are from driver_types.h. They are unchanged since CUDA 10.2.
FaultCause FaultOfCuda(int error) {
  if (IsIn(error, {35,     // driver too old
                   36,     // driver too old, for one call
                   100,    // no device
                   101,    // no such device
                   209,    // no kernel for this architecture
                   222,    // PTX of a newer toolkit
                   803,    // library and kernel module of the driver differ
                   804}))  // no forward compatibility on this device
    return FaultCause::kConfiguration;
  if (IsIn(error, {127,                           // start-up failure
                   214,                           // ECC, uncorrectable
                   220,                           // NVLink, uncorrectable
                   226,                           // contained memory error
                   304,                           // the operating system
                   702,                           // a kernel was too slow for the watchdog
                   714,                           // hardware stack error
                   802,                           // fabric manager not ready
                   805, 806, 807, 808, 809, 810,  // MPS
                   911,                           // external device
                   999}))                         // unknown
    return FaultCause::kProcess;
  if (IsIn(error, {3,                   // initialisation
                   46,                  // all devices busy or in exclusive use
                   53,                  // a launch before this one failed
                   700,                 // illegal address
                   709,                 // context destroyed
                   715, 716, 717, 718,  // illegal instruction, misaligned, address space, pc
                   719}))               // launch failure
    return FaultCause::kUncertain;
  return FaultCause::kNone;
}

FaultCause FaultOfNccl(int result, std::string_view last_error) {
  switch (result) {
    case 1:  // unhandled CUDA error
      return FaultCause::kUncertain;
    case 4:  // invalid argument
    case 5:  // invalid usage
      return FaultCause::kConfiguration;
    default:
      // 2 (system), 3 (internal), 6 (remote). The survivors of a lost peer may see any of them, and
      // their memory is intact.
      return Has(last_error, {"ersion mismatch", "Mismatched version"}) ? FaultCause::kConfiguration
                                                                        : FaultCause::kPeer;
  }
}

FaultCause FaultOfText(std::string_view what) {
  if (Has(what, {"device-side assert", "out of memory", "no kernel image"}))
    return FaultCause::kNone;
  if (Has(what, {"uncorrectable ECC", "uncorrectable NVLink", "unknown error", "hardware stack"}))
    return FaultCause::kProcess;
  const bool of_device = Has(what, {"CUDA error", "CUDA driver error"});
  const bool of_library = Has(what, {"CUBLAS_STATUS_", "CUDNN_STATUS_", "CUSPARSE_STATUS_",
                                     "CUSOLVER_STATUS_", "CUFFT_"}) &&
                          Has(what, {"_EXECUTION_FAILED", "_INTERNAL_ERROR", "_NOT_INITIALIZED",
                                     "_ALLOC_FAILED", "_MAPPING_ERROR", "_EXEC_FAILED"});
  const bool sticky = of_device && Has(what, {"illegal memory access", "illegal instruction",
                                              "misaligned", "unspecified launch failure",
                                              "invalid program counter", "context is destroyed"});
  return sticky || of_library ? FaultCause::kUncertain : FaultCause::kNone;
}

absl::Status ProcessFault(std::string_view message, bool uncertain) {
  absl::Status status = PeerLost(message);
  status.SetPayload(kMark, absl::Cord(uncertain ? "uncertain" : "certain"));
  return status;
}

bool IsProcessFault(const absl::Status& status) { return status.GetPayload(kMark).has_value(); }

absl::Status FaultStatus(FaultCause kind, std::string_view message) {
  switch (kind) {
    case FaultCause::kNone:
      return ProgramError(message);
    case FaultCause::kConfiguration:
      return ConfigurationError(message);
    case FaultCause::kPeer:
      return PeerLost(message);
    case FaultCause::kProcess:
    case FaultCause::kUncertain:
      return ProcessFault(message, kind == FaultCause::kUncertain);
  }
  return ProgramError(message);
}

absl::Status ClassifyFault(const absl::Status& status, int restarts) {
  const auto mark = status.GetPayload(kMark);
  if (!mark || *mark != "uncertain") return status;
  if (restarts < kUncertainFaults) return ProcessFault(Message(status), /*uncertain=*/false);
  return ProgramError(fmt::format(
      "{}; this task was started again {} times, so that another host's or device's fault is "
      "unlikely",
      Message(status), restarts));
}

}  // namespace muster
