// The one error idiom: absl::Status with a sentence that says what, where and what to do. Whatever
// a user, a peer, a disk or a network can cause is a Status; only a broken invariant aborts. The
// Status code decides the process's exit code.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster {

// What a process tells its launcher. Below 128 permanent, from 128 on retryable (Kubeflow's rule
// for TFJob's ExitCode).
enum class ExitCode : int {
  kDone = 0,
  kProgramFailed = 1,  // the user's program failed
  kConfiguration = 2,  // TF_CONFIG, job file, flags, ports, model_dir
  kDataDamaged = 3,    // data or checkpoint damaged beyond repair
  kRetryable = 138,    // a peer was lost, a deadline passed, or this process was superseded: a
                       // restart can help
  kPreempted = 143,    // stopped at an agreed step and saved
};

// Makers, one for each cause. The message is a whole sentence for a person.
absl::Status ProgramError(std::string_view message);        // kUnknown            -> 1
absl::Status ConfigurationError(std::string_view message);  // kInvalidArgument    -> 2
absl::Status DataError(std::string_view message);           // kDataLoss           -> 3
absl::Status PeerLost(std::string_view message);            // kUnavailable        -> 138
absl::Status DeadlinePassed(std::string_view message);      // kDeadlineExceeded   -> 138
absl::Status Superseded(std::string_view message);          // kAborted            -> 138
absl::Status Preempted(std::string_view message);           // kCancelled          -> 143

// Codes that no maker above produces (kInternal, ...) are program errors, 1.
ExitCode ExitCodeOf(const absl::Status& status);
// The inverse, for a verdict that came over the wire. REQUIRES: code != kDone.
absl::Status StatusFor(ExitCode code, std::string_view message);
// 0, 1, 2, 3, 138, 143; anything else is kRetryable (a peer of another version).
ExitCode ExitCodeFromInt(int code);

// absl's own string_view (Debian's abseil is not built on std::string_view) as std's, for fmt and
// friends.
inline std::string_view Message(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

// The same status with `prefix` before its message.
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
