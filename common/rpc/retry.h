// The retry policy of the whole control plane: how long to wait between two tries, and how a
// failed RPC reads.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <string_view>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::rpc {

// Who waits for a process that starts again wastes half a delay on average: they grow slowly.
struct RetryPolicy {
  Duration initial = std::chrono::milliseconds(50);
  Duration max = std::chrono::seconds(1);
  double multiplier = 1.3;
  double jitter = 0.2;  // each delay is multiplied by 1 +- jitter, so that a herd spreads out
};

// The delays of one sequence of tries. Not thread-safe.
class Backoff {
 public:
  explicit Backoff(RetryPolicy policy = {}, uint64_t seed = 0);
  Duration Next();
  void Reset() { base_ = policy_.initial; }

 private:
  RetryPolicy policy_;
  Duration base_;
  uint64_t random_;
};

// Nobody answered (refused, no such name, connection lost, no reply in time): worth another try.
bool IsUnreachable(const grpc::Status& status);
// Why, short: "connection refused", "no such host", "no answer", else gRPC's own text.
std::string WhyUnreachable(const grpc::Status& status);
// `what` names call and peer. Unreachable peers become PeerLost, deadlines DeadlinePassed, bad
// requests ConfigurationError.
absl::Status FromGrpc(const grpc::Status& status, std::string_view what);

}  // namespace muster::rpc
