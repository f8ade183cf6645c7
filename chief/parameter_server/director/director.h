// The Director runs a parameter-server job on the chief. It assigns shards (parts of the variables)
// to servers (ps tasks) and fills the servers with the initial state. It assigns batches to
// workers; such an assignment is called a lease. It takes checkpoints, and lets workers evaluate.
// The job is done when all steps are complete and the state after the final step is saved in a
// checkpoint (if the job writes checkpoints). See docs/parameter_server.md for the rules.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "chief/coordinator/member_events.h"
#include "common/job/job.h"
#include "common/push_pull/options.h"
#include "common/rpc/channel.h"
#include "common/train/chief_role.h"

namespace muster::chief {

struct DirectorRecord;

struct DirectorOptions {
  Job job;
  int workers = 1;
  std::vector<std::string> servers;  // gRPC addresses of the ps tasks, from the cluster spec.
  // Returns the term of this chief: a number above the terms of all earlier chiefs of the run. The
  // term rises if a member has seen a higher term. The Director calls the function whenever it
  // needs the term, but not before the first member is admitted.
  std::function<uint32_t()> term;
  std::function<std::string()> run_id;
  rpc::ChannelOptions channel;
  // Receives the counters about once a second during training, and at its end. Called by the thread
  // of Run. May be empty.
  std::function<void(const DirectorRecord&)> on_counters;
};

// Counts for "parameter_server" in result.json.
struct DirectorRecord {
  int64_t updates = 0;   // The number of completed batches. Each is one push by a worker.
  int64_t repeated = 0;  // The number of examples of leases that were given out again.
  // How often a worker was lost while it may have been computing a lease. The servers may have
  // applied a part of this lease's push, all of it, or nothing.
  int64_t torn = 0;
  // The number of lost updates, summed over all shards. A shard loses updates if all servers with a
  // copy of the shard are lost.
  int64_t lost_updates = 0;
  int64_t refused = 0;  // The number of pushes that had an infinity or a NaN.
  // The staleness of a push is the number of updates by other workers between the pull of the
  // parameters and the push.
  int64_t staleness_max = 0;
  double staleness_mean = 0;
  struct OfWorker {
    int64_t max = 0;
    double mean = 0;
  };
  std::map<int, OfWorker> staleness;  // Keyed by worker.
};

// Returns {"updates", "repeated_examples", "torn_pushes", "lost_updates", "refused_pushes",
// "staleness": {"max", "mean", "workers": {"0": {"max", "mean"}, ...}}}.
Json ToJson(const DirectorRecord& record);

class Director : public MemberEvents {
 public:
  static std::unique_ptr<Director> Make(DirectorOptions options);

  // Returns the service proto::Leases, which is registered on the coordinator's gRPC server. Until
  // Run is called, the service answers UNAVAILABLE.
  virtual grpc::Service* service() = 0;
  // Blocks until the job is done, and returns OK. Returns Preempted after a requested stop, or the
  // error that ended the job. Does not send the outcome to the members: the caller does so by
  // ending the job (Coordinator::End).
  virtual absl::Status Run(const DirectorStart& start) = 0;
  // Thread-safe. Does the same as OnStopRequested.
  virtual void RequestStop() = 0;
  // Thread-safe. Called if the coordinator has ended the job. Run soon returns `why`.
  virtual void Abort(const absl::Status& why) = 0;
  // Thread-safe.
  virtual DirectorRecord record() const = 0;
  // Thread-safe, and may be called before Run. Returns true if a present server was already a
  // member before its last admission (AdmittedMember::again). Such a server may hold the run's
  // state.
  virtual bool MayHaveState() const = 0;
};

}  // namespace muster::chief
