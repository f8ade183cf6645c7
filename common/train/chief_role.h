// The work of the chief's process besides training: it coordinates the job and publishes results.
// chief/ implements it, worker/ runs it beside the training loop, and only a main.cc depends on
// both.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/faults/faults.h"
#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/train/membership.h"
#include "common/train/state/checkpointing.h"

namespace muster {

struct ChiefRoleOptions {
  ClusterConfig cluster;  // May be local: then there is no other task to coordinate.
  Job job;
  std::map<std::string, std::string> versions;
  bool restarted = false;    // This process replaces a lost process of the same job.
  Faults* faults = nullptr;  // Planned faults. Must outlive the role. May be null.
  // Returns whether this process was asked to stop before the job had other members. Null: never.
  std::function<bool()> asked_to_stop = nullptr;
};

// The state that training begins with.
struct StartingPoint {
  // The job was already trained to its end. No work is left, and all members learn this.
  bool finished = false;
  // To resume from. None: start from the program's initial state.
  std::optional<checkpoint::Snapshot> restore;
  // Another chief of this job ran before: members may hold a newer state.
  bool may_be_held = false;
};

class Replica;

// What the chief of a parameter-server job uses to direct it.
struct DirectParts {
  Replica* replica = nullptr;  // Built on the CPU, to save and restore. Must outlive the call.
  int64_t train_examples = 0, validation_examples = 0, test_examples = 0;  // 0: no such split.
  int64_t test_every = 0;  // In epochs. 0: the test pass runs only at the end.
  std::optional<checkpoint::Snapshot> restore;
  // The values of integer buffers in build(), by name. Set only if weights were loaded after
  // build() and `restore` is not set. `unloaded` is the error of loading the weights. It is ignored
  // if the servers already hold the run.
  std::optional<std::map<std::string, std::string>> built_integers;
  absl::Status unloaded;
};

class ChiefRole {
 public:
  virtual ~ChiefRole() = default;
  // Applies the job's `restore` and model_dir. Reads the checkpoint, so it may take long.
  virtual absl::StatusOr<StartingPoint> Begin() = 0;
  // Returns the sink for checkpoints, or null if nothing is written. Owned by this object. Not used
  // before Begin().
  virtual CheckpointSink* checkpoints() = 0;
  // Returns the observers that training reports to. Owned by this object.
  virtual std::vector<Observer*> observers() = 0;
  // Replaces training in a parameter-server job: directs workers and servers until all work is done
  // and saved, then ends the job. The caller passes the returned status to End.
  virtual absl::Status Direct(const DirectParts& parts) = 0;
  // Thread-safe. Ends the job for all members, unless it has ended. End must follow.
  virtual void EndJob(const absl::Status& result) = 0;
  // Thread-safe. Has the effect of a stop request to a member. For a chief that is not a member.
  virtual void RequestStop() = 0;
  // Called after this process's own training, or its preparation, has ended with `result`. Waits
  // until all members have left, within the job's deadlines, and writes the result. Returns the
  // verdict of the job, which is this process's exit status. Two threads may call it: the second
  // one blocks and gets the same verdict.
  virtual absl::Status End(const absl::Status& result) = 0;
  // Thread-safe. From now on End does not wait for tasks that are not members, such as an
  // evaluator.
  virtual void StopWaiting() {}
};

using ChiefRoleFactory =
    std::function<absl::StatusOr<std::unique_ptr<ChiefRole>>(const ChiefRoleOptions&)>;

}  // namespace muster
