#include "common/rpc/retry.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace muster::rpc {

Backoff::Backoff(RetryPolicy policy, uint64_t seed)
    : policy_(policy), base_(policy.initial), random_(seed * 2 + 1) {}

Duration Backoff::Next() {
  random_ = random_ * 6364136223846793005ull + 1442695040888963407ull;
  const double unit = static_cast<double>(random_ >> 11) / static_cast<double>(1ull << 53);
  const double seconds = Seconds(base_) * (1 + policy_.jitter * (2 * unit - 1));
  base_ = std::min(policy_.max, FromSeconds(Seconds(base_) * policy_.multiplier));
  return FromSeconds(seconds);
}

bool IsUnreachable(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
         status.error_code() == grpc::StatusCode::CANCELLED;
}

std::string WhyUnreachable(const grpc::Status& status) {
  const std::string& text = status.error_message();
  auto has = [&text](const char* part) { return text.find(part) != std::string::npos; };
  if (has("Connection refused")) return "connection refused";
  if (has("Connection reset") || has("Socket closed")) return "connection lost";
  if (has("No route to host")) return "no route to the host";
  if (has("Network is unreachable")) return "network unreachable";
  if (has("DNS resolution failed") || has("Domain name not found")) return "no such host name";
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) return "no answer in time";
  if (status.error_code() == grpc::StatusCode::CANCELLED) return "connection lost";
  if (has("timed out") || has("Timeout")) return "no answer";
  return text.empty() ? "connection lost" : text;
}

absl::Status FromGrpc(const grpc::Status& status, std::string_view what) {
  if (status.ok()) return absl::OkStatus();
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return DeadlinePassed(fmt::format("{}: no answer in time", what));
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
      return PeerLost(fmt::format("{}: {}", what, WhyUnreachable(status)));
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::UNIMPLEMENTED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return ConfigurationError(fmt::format("{}: {}", what, status.error_message()));
    default:
      return PeerLost(fmt::format("{}: {} (gRPC status {})", what, status.error_message(),
                                  static_cast<int>(status.error_code())));
  }
}

}  // namespace muster::rpc
