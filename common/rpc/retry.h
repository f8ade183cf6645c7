// The retry policy of the whole control plane: the delay between two attempts, and the text of a
// failed RPC.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <string_view>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::rpc {

// A caller that waits for a restarting process wastes half a delay on average, so delays grow
// slowly.
struct RetryPolicy {
  Duration initial = std::chrono::milliseconds(50);
  Duration max = std::chrono::seconds(1);
  double multiplier = 1.3;
  double jitter = 0.2;  // Each delay is multiplied by 1 +- jitter, to spread many callers.
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

// Returns whether nobody answered (refused, unknown name, lost connection, no reply in time).
// Another attempt may succeed.
bool IsUnreachable(const grpc::Status& status);
// Returns a short reason: "connection refused", "no such host", "no answer", else gRPC's text.
std::string WhyUnreachable(const grpc::Status& status);
// `what` names the call and the peer. Unreachable peers become PeerLost, missed deadlines
// DeadlinePassed, invalid requests ConfigurationError.
absl::Status FromGrpc(const grpc::Status& status, std::string_view what);

}  // namespace muster::rpc
