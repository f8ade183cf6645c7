// Directs a parameter-server job on the chief: fills the servers, leases examples to workers, makes
// views, takes checkpoints as cuts, has workers evaluate, and ends the job when every accepted
// update is in the final checkpoint. docs/parameter_server.md tells the rules.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chief/member_events.h"
#include "common/push_pull/options.h"
#include "common/rpc/channel.h"
#include "common/train/checkpointing.h"
#include "common/train/job.h"
#include "common/train/membership.h"

namespace muster {

class Replica;

// What there is once the program is built and it is known where to begin.
struct DirectorStart {
  Replica* replica = nullptr;  // the chief's own, on the CPU: what is saved and restored
  int64_t train_examples = 0, validation_examples = 0, test_examples = 0;  // 0: no such split
  int64_t test_every = 0;  // epochs; 0: the test pass is made at the end alone
  std::optional<checkpoint::Snapshot> restore;
  // Without `restore`: integer buffers as build() made them, by name, where weights were loaded
  // since; and why these could not be, which counts unless the servers hold the run already.
  std::optional<std::map<std::string, std::string>> built_integers;
  absl::Status unloaded;
  std::vector<Observer*> observers;
  CheckpointSink* checkpoints = nullptr;  // null: nothing is saved
};

struct DirectorOptions {
  Job job;
  int workers = 1;
  std::vector<std::string> servers;  // gRPC addresses of the ps tasks, of the cluster spec
  // Of this chief: rises where a member has seen a higher one, so to be asked whenever it counts,
  // after the first member was admitted.
  std::function<uint32_t()> epoch;
  std::function<std::string()> run_id;
  rpc::ChannelOptions channel;
};

// Counts for result.json ("parameter_server").
struct DirectorRecord {
  int64_t updates = 0;       // accepted pushes of whole batches
  int64_t repeated = 0;      // examples that were leased again
  int64_t torn = 0;          // losses of workers with a lease, whose push may be in parts
  int64_t lost_updates = 0;  // by the loss of servers without a backup
  int64_t refused = 0;       // pushes with numbers that are not finite
  int64_t staleness_max = 0;
  double staleness_mean = 0;
  struct OfWorker {
    int64_t max = 0;
    double mean = 0;
  };
  std::map<int, OfWorker> staleness;  // by worker
};

// {"updates", "repeated_examples", "torn_pushes", "lost_updates", "refused_pushes", "staleness":
// {"max", "mean", "workers": {"0": {"max", "mean"}, ...}}}.
Json ToJson(const DirectorRecord& record);

class Director : public MemberEvents {
 public:
  static std::unique_ptr<Director> Make(DirectorOptions options);

  // proto::Leases, for the coordinator's server. Answers UNAVAILABLE before Run.
  virtual grpc::Service* service() = 0;
  // Directs until the job's work is done and saved: OK; Preempted after a stop that was asked for;
  // else what went wrong. Members are not told: the caller ends the job with the verdict.
  virtual absl::Status Run(const DirectorStart& start) = 0;
  // Any thread: as OnStopRequested.
  virtual void RequestStop() = 0;
  // Any thread: the job has ended by other means; Run returns `why` soon.
  virtual void Abort(const absl::Status& why) = 0;
  virtual DirectorRecord record() const = 0;
  // Any thread, also before Run: servers have come that may hold what a chief before this one
  // directed.
  virtual bool MayBeHeld() const = 0;
};

}  // namespace muster
