// A worker's client of the gRPC service Leases, with which the chief of a parameter-server job
// distributes the work. A lease assigns examples to one worker: a training batch, or a part of a
// validation or test pass.
//
// The client requests leases ahead of time. While the worker computes one lease, the client loads
// the examples of the next lease. The client reports completed leases to the chief, and retries
// while the chief does not answer. Each request also lists the leases that this worker holds. The
// client reports the batches of the last 30 seconds again in two cases: after a failed request, and
// when a new process has replaced the chief.
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
#include "common/job/timeouts.h"
#include "common/push_pull/layout.h"
#include "common/push_pull/variable_messages.h"
#include "common/rpc/channel.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster::worker {

struct LeaseClientOptions {
  std::string chief_address;
  rpc::ChannelOptions channel;
  int worker = 0;            // The index of this worker.
  uint64_t incarnation = 0;  // A random number that identifies this process.
  // The digest of variables and layout (push_pull::DigestOf). The chief refuses a worker whose
  // digest differs from its own.
  std::string digest;
  std::vector<push_pull::VariableSpec> variables;
  int ahead = 1;  // The number of leases to hold in addition to the current one.
  // Calls return an error when the chief has not answered for this time.
  Duration patience = Timeouts().rejoin;
  // Loads the examples of a lease. Called on the client's thread.
  std::function<absl::StatusOr<std::shared_ptr<void>>(const proto::Lease& lease)> load;
  // The client stores the number of loaded leases here. May be null.
  std::shared_ptr<data::QueueDepth> depth;
};

struct LeasedWork {
  std::optional<proto::Lease> lease;  // nullopt if there is no work now.
  bool done = false;                  // True if no more work will come.
  std::shared_ptr<void> examples;     // The result of LeaseClientOptions::load.
  MonotonicTime loaded;               // The time at which `load` returned.
  // Only for training: the time at which the client learned that the lease may start. The worker
  // must not use parameters that it pulled before this time.
  MonotonicTime may_start;
};

class LeaseClient {
 public:
  static absl::StatusOr<std::unique_ptr<LeaseClient>> Make(LeaseClientOptions options);
  virtual ~LeaseClient() = default;

  // Returns the next loaded lease that may start. Blocks until there is one. Returns without a
  // lease if there will be no more work, or if the chief answers that there is no work now. While
  // this worker has to wait for other workers, the chief gives this answer every second. Returns an
  // error if loading fails, if the chief refuses this worker, or if the chief does not answer for
  // `patience`. After Stop, returns the status that was passed to Stop.
  virtual absl::StatusOr<LeasedWork> Take() = 0;
  // Reports a completed lease to the chief, at once or with the next request.
  virtual void Complete(proto::BatchDone done) = 0;
  virtual void Complete(proto::EvaluationDone done) = 0;
  // Reports the integer buffers that a batch has changed, with their values after the push with
  // number `sequence`. The client sends the values with the next report of a completed lease. Must
  // be called before Complete.
  virtual void ReportIntegers(const push_pull::IntegerBuffers& changed, uint64_t sequence) = 0;
  // Returns the values that the integer buffers of this process must have at the start. The chief
  // sends these values once. Returns an empty map if the values have not arrived yet, or if an
  // earlier call has returned the values.
  virtual push_pull::IntegerBuffers TakeIntegers() = 0;
  // Discards all leases, including the current one.
  virtual void Forget() = 0;

  // Asks the chief for the newest view, the assignment of shards (parts of the variables) to
  // parameter servers. Blocks until there is a view with a number above `newer_than` in which each
  // shard has a primary server. Returns an error if the chief does not answer for `patience`. If
  // this worker must discard its current work, sets `*abandon` to true and returns Superseded. The
  // reason is that the chief has treated this worker as lost, or that the servers' state was reset.
  virtual absl::StatusOr<proto::View> NextView(uint64_t newer_than, bool* abandon) = 0;

  // Called when the job is done. Take then returns LeasedWork::done, and NextView returns an error.
  virtual void Finish() = 0;
  // Ends the client. Waiting and later calls return `why`.
  virtual void Stop(absl::Status why) = 0;
};

}  // namespace muster::worker
