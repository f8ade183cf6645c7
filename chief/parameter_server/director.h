// The Director runs a parameter-server job on the chief. It fills the servers with the initial
// state, leases examples to workers, assigns shards to servers, takes checkpoints and lets workers
// evaluate. It ends the job once the final checkpoint has every accepted update. See
// docs/parameter_server.md for the rules.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chief/coordinator/member_events.h"
#include "common/job/job.h"
#include "common/push_pull/options.h"
#include "common/rpc/channel.h"
#include "common/train/membership.h"
#include "common/train/state/checkpointing.h"

namespace muster {
class Replica;
}

namespace muster::chief {

// The arguments of Director::Run, which are known once the program is built.
struct DirectorStart {
  // The chief's replica, on the CPU. Checkpoints are saved from it and restored into it.
  Replica* replica = nullptr;
  // 0: the data has no such split.
  int64_t train_examples = 0, validation_examples = 0, test_examples = 0;
  int64_t test_every = 0;  // Interval in epochs. 0: the test pass runs only at the end.
  std::optional<checkpoint::Snapshot> restore;
  // Set if there is no `restore` and weights were loaded after build(). `built_integers` maps the
  // names of the integer buffers to their values after build(). `unloaded` is the error of loading
  // the weights. Run returns this error unless the servers already hold the run's state.
  std::optional<std::map<std::string, std::string>> built_integers;
  absl::Status unloaded;
  std::vector<Observer*> observers;
  CheckpointSink* checkpoints = nullptr;  // Null: nothing is saved.
};

struct DirectorRecord;

struct DirectorOptions {
  Job job;
  int workers = 1;
  std::vector<std::string> servers;  // gRPC addresses of the ps tasks, from the cluster spec.
  // Returns the term of this chief. The term rises if a member has seen a higher one, so the
  // Director calls this at each use. Must not be called before the first member was admitted.
  std::function<uint32_t()> term;
  std::function<std::string()> run_id;
  rpc::ChannelOptions channel;
  // Receives the counters about once a second during training, and at its end. Called by the thread
  // of Run. May be empty.
  std::function<void(const DirectorRecord&)> on_counters;
};

// Counters for "parameter_server" in result.json.
struct DirectorRecord {
  int64_t updates = 0;   // Accepted pushes of whole batches.
  int64_t repeated = 0;  // Examples that were leased again.
  // Losses of workers with a lease. The servers may have applied the lost worker's push in part or
  // in whole.
  int64_t torn = 0;
  int64_t lost_updates = 0;  // Updates that were lost because a server without a backup was lost.
  int64_t refused = 0;       // Pushes with values that are not finite.
  int64_t staleness_max = 0;
  double staleness_mean = 0;
  struct OfWorker {
    int64_t max = 0;
    double mean = 0;
  };
  std::map<int, OfWorker> staleness;  // Indexed by worker.
};

// Returns {"updates", "repeated_examples", "torn_pushes", "lost_updates", "refused_pushes",
// "staleness": {"max", "mean", "workers": {"0": {"max", "mean"}, ...}}}.
Json ToJson(const DirectorRecord& record);

class Director : public MemberEvents {
 public:
  static std::unique_ptr<Director> Make(DirectorOptions options);

  // The service proto::Leases for the coordinator's server. Answers UNAVAILABLE before Run.
  virtual grpc::Service* service() = 0;
  // Blocks until the job is done and saved, then returns OK. Returns Preempted after a requested
  // stop, else the error. Does not notify the members: the caller ends the job with the verdict.
  virtual absl::Status Run(const DirectorStart& start) = 0;
  // Thread-safe. Does the same as OnStopRequested.
  virtual void RequestStop() = 0;
  // Thread-safe. Called if the job has ended by other means. Run soon returns `why`.
  virtual void Abort(const absl::Status& why) = 0;
  virtual DirectorRecord record() const = 0;
  // Thread-safe, also before Run. Returns whether a server has joined that may still hold this
  // run's state from the time of an earlier chief.
  virtual bool MayHaveState() const = 0;
};

}  // namespace muster::chief
