// Error handling. An error is an absl::Status with a sentence that says what failed, where, and
// what to do. All errors that a user, another process, a disk or a network can cause are Statuses.
// A bug of Muster itself (a broken invariant) aborts the process. The code of the Status determines
// the process's exit code.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster {

// The exit code of a process. As in the restart policy ExitCode of Kubeflow's TFJob, codes from 1
// to 127 are permanent errors, and codes from 128 on are retryable.
enum class ExitCode : int {
  kDone = 0,
  kProgramFailed = 1,  // The user's program failed.
  kConfiguration = 2,  // An error in TF_CONFIG, the job file, flags, ports or model_dir.
  kDataDamaged = 3,    // Data or a checkpoint is damaged beyond repair.
  // Another process was lost, a deadline passed, or a newer process replaced this process. A
  // restart of the process can help.
  kRetryable = 138,
  // Stopped on request. A job in training stops after an agreed step and saves a checkpoint.
  kPreempted = 143,
};

// These functions make the Status for each cause. The message is a whole sentence for a person. The
// comments show the Status code and the exit code.
absl::Status ProgramError(std::string_view message);        // kUnknown            -> 1
absl::Status ConfigurationError(std::string_view message);  // kInvalidArgument    -> 2
absl::Status DataError(std::string_view message);           // kDataLoss           -> 3
absl::Status PeerLost(std::string_view message);            // kUnavailable        -> 138
absl::Status DeadlinePassed(std::string_view message);      // kDeadlineExceeded   -> 138
absl::Status Superseded(std::string_view message);          // kAborted            -> 138
absl::Status Preempted(std::string_view message);           // kCancelled          -> 143

// Returns the exit code of a status. A Status code that no function above produces, such as
// kInternal, gives kProgramFailed.
ExitCode ExitCodeOf(const absl::Status& status);
// Returns a Status for an exit code that another process sent: the inverse of ExitCodeOf. REQUIRES:
// code != kDone.
absl::Status StatusFor(ExitCode code, std::string_view message);
// Converts 0, 1, 2, 3, 138 and 143. Any other number gives kRetryable. Such a number can come from
// a process of another version.
ExitCode ExitCodeFromInt(int code);

// Returns the message as a std::string_view. fmt and similar libraries need this type. In Debian's
// abseil, absl::string_view is a different type.
inline std::string_view Message(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

// Returns the status with `prefix` before its message.
absl::Status Annotate(const absl::Status& status, std::string_view prefix);

}  // namespace muster

#define MUSTER_CONCAT_INNER(a, b) a##b
#define MUSTER_CONCAT(a, b) MUSTER_CONCAT_INNER(a, b)

#define MUSTER_RETURN_IF_ERROR(expression)                                                       \
  do {                                                                                           \
    if (absl::Status muster_status_ = (expression); !muster_status_.ok()) return muster_status_; \
  } while (false)

#define MUSTER_ASSIGN_OR_RETURN(declaration, expression) \
  MUSTER_ASSIGN_OR_RETURN_IMPL(MUSTER_CONCAT(muster_or_, __LINE__), declaration, expression)
#define MUSTER_ASSIGN_OR_RETURN_IMPL(variable, declaration, expression) \
  auto variable = (expression);                                         \
  if (!variable.ok()) return std::move(variable).status();              \
  declaration = *std::move(variable)
