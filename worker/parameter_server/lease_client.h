// A worker's client of proto::Leases. It requests work ahead of time, loads the examples of the
// next lease during the current one, and reports completed work. If the chief does not answer, it
// retries. The chief's successor then receives what this worker holds and has recently completed.
//
// Its own thread calls and loads. Thread-safe; one thread at a time may call Take and Complete.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/push_pull/layout.h"
#include "common/push_pull/variable_messages.h"
#include "common/rpc/channel.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster {

struct LeaseClientOptions {
  std::string chief_address;
  rpc::ChannelOptions channel;
  int worker = 0;
  uint64_t incarnation = 0;
  std::string digest;  // The digest of layout and variables, compared with the chief's.
  std::vector<VariableSpec> variables;
  int ahead = 1;  // Leases to request beyond the current one.
  // The worker gives up on a chief that does not answer for this time.
  Duration patience = std::chrono::minutes(10);
  // Loads the examples of a lease on this object's thread.
  std::function<absl::StatusOr<std::shared_ptr<void>>(const proto::Lease& lease)> load;
};

struct LeasedWork {
  std::optional<proto::Lease> lease;  // None: there is none yet, or none will come (`done`).
  bool done = false;                  // No more will come.
  std::shared_ptr<void> examples;     // Result of `load`.
  MonotonicTime loaded;
  // Only for training: when it was known that the lease may start. Parameters pulled before are too
  // old for it.
  MonotonicTime may_start;
};

class LeaseClient {
 public:
  static absl::StatusOr<std::unique_ptr<LeaseClient>> Make(LeaseClientOptions options);
  virtual ~LeaseClient() = default;

  // Blocks until there is work that may start, or no more will come, or the chief says that there
  // is none yet. The chief does so every second. That wait is for other workers, not for this
  // worker's input. Returns an error if loading fails, the chief refuses this worker or does not
  // answer for `patience`, and Stop's status after Stop.
  virtual absl::StatusOr<LeasedWork> Take() = 0;
  // The chief receives this at once or with the next request.
  virtual void Complete(proto::BatchDone done) = 0;
  virtual void Complete(proto::EvaluationDone done) = 0;
  // Reports the integer buffers that a batch changed, as of push `sequence`. The chief receives
  // them with the next completed work. Called before Complete.
  virtual void TellIntegers(const IntegerBuffers& changed, uint64_t sequence) = 0;
  // Returns the buffers with which this process is to begin, from the first chief that knew it.
  // Empty after the first call.
  virtual IntegerBuffers TakeIntegers() = 0;
  // Makes all leases void, also the current one.
  virtual void Forget() = 0;

  // Returns the newest view above `newer_than` in which each shard has a primary. Blocks, for at
  // most `patience` without a reply. Returns Superseded and sets `*abandon` if the current work is
  // void.
  virtual absl::StatusOr<proto::View> NextView(uint64_t newer_than, bool* abandon) = 0;

  // States that the job is done, whether or not the chief says so here. Take then returns `done`,
  // and no more views come.
  virtual void Finish() = 0;
  // Wakes all waiting calls. Every call ends with `why`.
  virtual void Stop(absl::Status why) = 0;
};

}  // namespace muster
