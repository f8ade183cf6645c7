// The delays between attempts of an RPC, and the conversion of failed RPCs to errors. The RPCs
// between the chief and the other tasks use these functions.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <string_view>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::rpc {

// The delays between attempts. The delays grow slowly. On average, a caller notices a restarted
// process after half a delay.
struct RetryPolicy {
  Duration initial = std::chrono::milliseconds(50);
  Duration max = std::chrono::seconds(1);
  double multiplier = 1.3;
  // Each delay is multiplied by a random number between 1 - jitter and 1 + jitter, so that many
  // callers do not retry at the same time.
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

// Returns true if the server did not answer: the connection was refused or lost, the host name is
// unknown, or no reply came in time. Another attempt may succeed.
bool IsUnreachable(const grpc::Status& status);
// Returns a short reason, such as "connection refused" or "no answer". Returns gRPC's text if the
// reason is unknown.
std::string WhyUnreachable(const grpc::Status& status);
// Converts the status of an RPC. `what` names the call and the peer, and begins the error message.
// Returns DeadlinePassed for DEADLINE_EXCEEDED. Returns ConfigurationError for INVALID_ARGUMENT,
// UNIMPLEMENTED and UNAUTHENTICATED. Returns PeerLost for all other errors.
absl::Status FromGrpc(const grpc::Status& status, std::string_view what);

}  // namespace muster::rpc
