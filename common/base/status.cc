#include "muster/status.h"

#include <fmt/format.h>

#include "common/base/json/utf8.h"
#include "common/base/peer_text.h"

namespace muster {

// The functions make messages valid UTF-8, because protobuf and JSON require it. A message may
// quote programs, paths and hosts, which may contain any bytes.
absl::Status ProgramError(std::string_view m) { return absl::UnknownError(ValidUtf8(m)); }
absl::Status ConfigurationError(std::string_view m) {
  return absl::InvalidArgumentError(ValidUtf8(m));
}
// A DataError may quote the content of a file, which may be long and contain any bytes.
absl::Status DataError(std::string_view m) {
  constexpr size_t kMax = 4096;
  return absl::DataLossError(SanitizePeerText(m, kMax));
}
absl::Status PeerLost(std::string_view m) { return absl::UnavailableError(ValidUtf8(m)); }
absl::Status DeadlinePassed(std::string_view m) {
  return absl::DeadlineExceededError(ValidUtf8(m));
}
absl::Status Superseded(std::string_view m) { return absl::AbortedError(ValidUtf8(m)); }
absl::Status Preempted(std::string_view m) { return absl::CancelledError(ValidUtf8(m)); }

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kDone;
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kConfiguration;
    case absl::StatusCode::kDataLoss:
      return ExitCode::kDataDamaged;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
      return ExitCode::kRetryable;
    case absl::StatusCode::kCancelled:
      return ExitCode::kPreempted;
    default:
      return ExitCode::kProgramFailed;
  }
}

absl::Status StatusFor(ExitCode code, std::string_view message) {
  switch (code) {
    case ExitCode::kDone:
      return absl::OkStatus();
    case ExitCode::kProgramFailed:
      return ProgramError(message);
    case ExitCode::kConfiguration:
      return ConfigurationError(message);
    case ExitCode::kDataDamaged:
      return DataError(message);
    case ExitCode::kRetryable:
      return PeerLost(message);
    case ExitCode::kPreempted:
      return Preempted(message);
  }
  return PeerLost(message);
}

ExitCode ExitCodeFromInt(int code) {
  switch (code) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 143:
      return static_cast<ExitCode>(code);
    default:
      return ExitCode::kRetryable;
  }
}

absl::Status Annotate(const absl::Status& status, std::string_view prefix) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), ValidUtf8(fmt::format("{}{}", prefix, Message(status))));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    annotated.SetPayload(type, payload);
  });
  return annotated;
}

}  // namespace muster
