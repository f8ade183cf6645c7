// The retry policy of the control plane: the delays between attempts, and the conversion of failed
// RPCs to errors.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <string_view>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::rpc {

// The delays between attempts. They grow slowly, because a caller that waits for a restarting
// process wastes half a delay on average.
struct RetryPolicy {
  Duration initial = std::chrono::milliseconds(50);
  Duration max = std::chrono::seconds(1);
  double multiplier = 1.3;
  // Each delay is multiplied by a random number between 1 - jitter and 1 + jitter. Many callers
  // thus do not retry at the same time.
  double jitter = 0.2;
};

// The delays of one sequence of attempts. Not thread-safe.
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

// Returns whether the server did not answer: connection refused or lost, unknown name, or no reply
// in time. Another attempt may succeed.
bool IsUnreachable(const grpc::Status& status);
// Returns "connection refused", "no such host", "no answer", or gRPC's text.
std::string WhyUnreachable(const grpc::Status& status);
// Converts the status of an RPC. `what` names the call and the peer. Returns PeerLost for an
// unreachable peer, DeadlinePassed for a missed deadline, ConfigurationError for an invalid
// request.
absl::Status FromGrpc(const grpc::Status& status, std::string_view what);

}  // namespace muster::rpc
