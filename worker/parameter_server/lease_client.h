// A worker's client of proto::Leases. A lease assigns examples to the worker: a batch, or a part of
// an evaluation. The client requests leases ahead of time and loads the examples of the next lease
// during the current one. It reports completed work to the chief. It retries while the chief does
// not answer. To a new chief it also reports the leases that this worker holds and has recently
// completed.
//
// The client has a thread for calls and loading. Thread-safe, but only one thread at a time may
// call Take and Complete.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/data/queue_depth.h"
#include "common/push_pull/layout.h"
#include "common/push_pull/variable_messages.h"
#include "common/rpc/channel.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster::worker {

struct LeaseClientOptions {
  std::string chief_address;
  rpc::ChannelOptions channel;
  int worker = 0;
  uint64_t incarnation = 0;
  std::string digest;  // The digest of layout and variables, which the chief compares with its own.
  std::vector<push_pull::VariableSpec> variables;
  int ahead = 1;  // The number of leases to hold beyond the current one.
  // Calls return an error after the chief has not answered for this time.
  Duration patience = std::chrono::minutes(10);
  // Loads the examples of a lease on this object's thread.
  std::function<absl::StatusOr<std::shared_ptr<void>>(const proto::Lease& lease)> load;
  std::shared_ptr<data::QueueDepth> depth;  // Counts the leases that are loaded. May be null.
};

struct LeasedWork {
  std::optional<proto::Lease> lease;  // Absent if there is no work now, or never again (`done`).
  bool done = false;                  // There will be no more work.
  std::shared_ptr<void> examples;     // The result of `load`.
  MonotonicTime loaded;
  // Only for training: when the client learned that the lease may start. Parameters that were
  // pulled earlier are too old for it.
  MonotonicTime may_start;
};

class LeaseClient {
 public:
  static absl::StatusOr<std::unique_ptr<LeaseClient>> Make(LeaseClientOptions options);
  virtual ~LeaseClient() = default;

  // Blocks until a lease may start, there will be no more work, or the chief says that there is no
  // work now. The chief says so every second while this worker has to wait for other workers.
  // Returns an error if loading fails, the chief refuses this worker, or the chief does not answer
  // for `patience`. Returns the status of Stop after Stop.
  virtual absl::StatusOr<LeasedWork> Take() = 0;
  // Reports completed work to the chief, at once or with the next request.
  virtual void Complete(proto::BatchDone done) = 0;
  virtual void Complete(proto::EvaluationDone done) = 0;
  // Reports the integer buffers that a batch changed, with their values after push `sequence`. The
  // chief receives them with the next completed work. Must be called before Complete.
  virtual void ReportIntegers(const push_pull::IntegerBuffers& changed, uint64_t sequence) = 0;
  // Returns the integer buffers that the chief sent, with which this process starts. Returns an
  // empty map from the second call on.
  virtual push_pull::IntegerBuffers TakeIntegers() = 0;
  // Discards all leases, including the current one.
  virtual void Forget() = 0;

  // Returns the newest view above `newer_than` in which each shard has a primary. Blocks until
  // there is one. Returns an error if the chief does not answer for `patience`. Returns Superseded
  // and sets `*abandon` if the chief says that this worker must discard its current work.
  virtual absl::StatusOr<proto::View> NextView(uint64_t newer_than, bool* abandon) = 0;

  // Called when the job is done. Take then returns `done`, and NextView returns an error.
  virtual void Finish() = 0;
  // Wakes all waiting calls. They and later calls return `why`.
  virtual void Stop(absl::Status why) = 0;
};

}  // namespace muster::worker
