// The chief's tasks besides training: the chief coordinates the job and publishes results. The
// folder chief/ implements ChiefRole, and worker/ calls it. Only main.cc files depend on both.
//
// A member is a process that trains. The chief is a member too, except in a parameter-server job.
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
#include "common/train/observer.h"
#include "common/train/state/checkpointing.h"

namespace muster {

class TaskMeter;

struct ChiefRoleOptions {
  ClusterConfig cluster;  // A local cluster consists of this process only.
  Job job;
  std::map<std::string, std::string> versions;
  bool restarted = false;    // True if this process replaces a lost process of the same job.
  Faults* faults = nullptr;  // Planned faults for tests. Must outlive the role. May be null.
  // Returns true if this process has received a stop request. Called while the chief waits for
  // another process to leave model_dir. May be null.
  std::function<bool()> asked_to_stop = nullptr;
  TaskMeter* meter = nullptr;  // Measures this process. Must outlive the role. May be null.
};

// The state from which training begins.
struct StartingPoint {
  // True if an earlier run completed the job. ChiefRole::Begin has then ended the job for all
  // members.
  bool finished = false;
  // The checkpoint to resume from. Absent if training begins from the program's initial state.
  std::optional<checkpoint::Snapshot> restore;
  // True if another chief process of this job ran before this process. Members may then have a
  // newer state than `restore`.
  bool may_be_held = false;
};

class Replica;

// The input of ChiefRole::Direct.
struct DirectorStart {
  // A copy of the model on the CPU. The role saves checkpoints from this copy, and restores them
  // into it. Must outlive the call of Direct.
  Replica* replica = nullptr;
  // Examples in each split. 0 if the program does not have the split.
  int64_t train_examples = 0, validation_examples = 0, test_examples = 0;
  // Epochs between two passes over the test split. 0 if the only pass is at the end of training.
  int64_t test_every = 0;
  // The checkpoint to resume from. Absent if training begins from the initial state.
  std::optional<checkpoint::Snapshot> restore;
  // Set if the caller has tried to load initial weights. The caller loads them only if `restore` is
  // absent. Maps the name of each integer buffer to the bytes that it had after build() and before
  // the load.
  std::optional<std::map<std::string, std::string>> built_integers;
  // The error of loading the initial weights. The chief ignores this error if the parameter servers
  // hold a state of this run, because the initial weights are then not needed. Servers do not hold
  // integer buffers. If the program has integer buffers, the chief ignores the error only if the
  // ChiefRecord (chief/leases/chief_record.h) of an earlier chief has their values.
  absl::Status unloaded;
  std::vector<Observer*> observers;       // ChiefRole::observers().
  CheckpointSink* checkpoints = nullptr;  // ChiefRole::checkpoints(). Null: nothing is saved.
};

class ChiefRole {
 public:
  virtual ~ChiefRole() = default;
  // Decides where training begins, from the job's `restore` and model_dir. Reads the checkpoint,
  // which may take minutes.
  virtual absl::StatusOr<StartingPoint> Begin() = 0;
  // Returns the writer of checkpoints, or null if the job writes no checkpoints. Owned by this
  // object. REQUIRES: Begin has returned.
  virtual CheckpointSink* checkpoints() = 0;
  // Returns the receivers of the training reports. Owned by this object.
  virtual std::vector<Observer*> observers() = 0;
  // Runs a parameter-server job: directs workers and servers until all work is done and saved. Ends
  // the job before the call returns. The chief of such a job calls Direct instead of training, and
  // passes the returned status to End.
  virtual absl::Status Direct(const DirectorStart& start) = 0;
  // Thread-safe. Ends the job with `result` for all members. Has no effect if the job has already
  // ended. The caller must call End afterwards.
  virtual void EndJob(const absl::Status& result) = 0;
  // Thread-safe. Has the same effect as a stop request (SIGTERM) to a member. Called by a chief
  // that is not a member.
  virtual void RequestStop() = 0;
  // Called with the result of this process's training, or of the preparation for training. Blocks
  // until all members have left, or the job's deadlines have passed. Writes result.json. Returns
  // the final status of the job, from which the caller computes the exit code. Two threads may call
  // End: the second call also blocks, and returns the same status.
  virtual absl::Status End(const absl::Status& result) = 0;
  // Thread-safe. After this call, End no longer waits for tasks that are not members. An example of
  // such a task is the evaluator.
  virtual void StopWaiting() {}
};

using ChiefRoleFactory =
    std::function<absl::StatusOr<std::unique_ptr<ChiefRole>>(const ChiefRoleOptions&)>;

}  // namespace muster
