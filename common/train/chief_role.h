// What the chief's process does besides training: it coordinates the job and publishes results.
// chief/ implements ChiefRole, and worker/ runs it beside the training loop. Only a main.cc depends
// on both folders.
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

class TaskMeter;

struct ChiefRoleOptions {
  ClusterConfig cluster;  // A local cluster has no other task to coordinate.
  Job job;
  std::map<std::string, std::string> versions;
  bool restarted = false;    // This process replaces a lost process of the same job.
  Faults* faults = nullptr;  // Planned faults. Must outlive the role. May be null.
  // Returns true if this process was asked to stop before the job had other members. Null if that
  // cannot happen.
  std::function<bool()> asked_to_stop = nullptr;
  TaskMeter* meter = nullptr;  // Measures this process. Must outlive the role. May be null.
};

// The state from which training begins.
struct StartingPoint {
  // True if an earlier run completed the job. The chief then ends the job for all members.
  bool finished = false;
  // The checkpoint to resume from. Absent if training begins from the program's initial state.
  std::optional<checkpoint::Snapshot> restore;
  // True if another chief of this job ran before. Members may then hold a newer state than
  // `restore`.
  bool may_be_held = false;
};

class Replica;

// The input of ChiefRole::Direct.
struct DirectParts {
  // A replica on the CPU, for saving and restoring. Must outlive the call.
  Replica* replica = nullptr;
  int64_t train_examples = 0, validation_examples = 0, test_examples = 0;  // 0 for a missing split.
  int64_t test_every = 0;  // In epochs. 0 if the test pass runs only at the end.
  std::optional<checkpoint::Snapshot> restore;
  // Maps names of integer buffers to their values after build() and before weights were loaded. Set
  // only if weights were loaded and `restore` is not set. `unloaded` is the error of loading the
  // weights. The chief ignores the error if the servers already hold the run.
  std::optional<std::map<std::string, std::string>> built_integers;
  absl::Status unloaded;
};

class ChiefRole {
 public:
  virtual ~ChiefRole() = default;
  // Decides from the job's `restore` and model_dir where training begins. Reads the checkpoint,
  // which may take long.
  virtual absl::StatusOr<StartingPoint> Begin() = 0;
  // Returns the sink for checkpoints, or null if the job writes none. Owned by this object.
  // REQUIRES: Begin has returned.
  virtual CheckpointSink* checkpoints() = 0;
  // Returns the observers that training reports to. Owned by this object.
  virtual std::vector<Observer*> observers() = 0;
  // Runs a parameter-server job: directs workers and servers until all work is done and saved, then
  // ends the job. The chief of such a job calls it instead of training, and passes the returned
  // status to End.
  virtual absl::Status Direct(const DirectParts& parts) = 0;
  // Thread-safe. Ends the job for all members, unless it has already ended. The caller must then
  // call End.
  virtual void EndJob(const absl::Status& result) = 0;
  // Thread-safe. Has the same effect as a stop request to a member. Used by a chief that is not a
  // member itself.
  virtual void RequestStop() = 0;
  // Called when this process's own training, or its preparation, has ended with `result`. Blocks
  // until all members have left, within the job's deadlines. Then writes result.json. Returns the
  // verdict of the job, which is this process's exit status. Two threads may call End: the second
  // call blocks and returns the same verdict.
  virtual absl::Status End(const absl::Status& result) = 0;
  // Thread-safe. After this call, End does not wait for tasks that are not members, such as an
  // evaluator.
  virtual void StopWaiting() {}
};

using ChiefRoleFactory =
    std::function<absl::StatusOr<std::unique_ptr<ChiefRole>>(const ChiefRoleOptions&)>;

}  // namespace muster
