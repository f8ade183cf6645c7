// What the process with the chief's role does besides training: it coordinates and publishes.
// chief/ implements it, worker/ runs it next to the training loop, and only a main.cc knows both.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/faults.h"
#include "common/cluster/cluster_config.h"
#include "common/train/checkpointing.h"
#include "common/train/job.h"
#include "common/train/membership.h"

namespace muster {

struct ChiefRoleOptions {
  ClusterConfig cluster;  // may be local: then there is nobody to coordinate
  Job job;
  std::map<std::string, std::string> versions;
  bool restarted = false;    // in the place of a process of the same job that was lost
  Faults* faults = nullptr;  // planned ones; outlives the role. Null: none
  // Whether this process was asked to stop, before there is anybody to tell; null: never.
  std::function<bool()> asked_to_stop = nullptr;
};

// With what training begins.
struct StartingPoint {
  // The job had been trained to its end before: nothing is left to do, and everybody is told so.
  bool finished = false;
  std::optional<checkpoint::Snapshot> restore;  // to go on from; none: from the program's own start
  // Another chief of this job has been at work: its members may hold a newer state.
  bool may_be_held = false;
};

class Replica;

// What a parameter-server job's chief directs with.
struct DirectParts {
  Replica* replica = nullptr;  // built on the CPU: what is saved and restored; outlives the call
  int64_t train_examples = 0, validation_examples = 0, test_examples = 0;  // 0: no such split
  int64_t test_every = 0;  // epochs; 0: the test pass is made at the end alone
  std::optional<checkpoint::Snapshot> restore;
  // Without `restore`: integer buffers as build() made them, by name, where weights were loaded
  // since; and why these could not be, which counts unless the servers hold the run already.
  std::optional<std::map<std::string, std::string>> built_integers;
  absl::Status unloaded;
};

class ChiefRole {
 public:
  virtual ~ChiefRole() = default;
  // What the job's `restore` and model_dir say. Reads the checkpoint, so it takes a while.
  virtual absl::StatusOr<StartingPoint> Begin() = 0;
  // Where checkpoints go; null where nothing is written. Lives as long as this object; nothing is
  // wanted before Begin().
  virtual CheckpointSink* checkpoints() = 0;
  // To be told of the training; they live as long as this object.
  virtual std::vector<Observer*> observers() = 0;
  // Of a parameter-server job, instead of training: directs workers and servers until the work is
  // done and saved, then ends the job. What End is to be called with.
  virtual absl::Status Direct(const DirectParts& parts) = 0;
  // Any thread: ends the job for everybody, unless it has ended; End follows.
  virtual void EndJob(const absl::Status& result) = 0;
  // Any thread: as if a member had been asked to stop. For a chief that is no member.
  virtual void RequestStop() = 0;
  // This process's own training (or its preparation) has ended with `result`. Waits, within the
  // job's deadlines, until all members have left, writes the result, and returns the verdict of the
  // job, which is this process's exit status.
  // May be called by two threads: the second one waits, and gets the same.
  virtual absl::Status End(const absl::Status& result) = 0;
  // Any thread: End waits for nobody who is no member (an evaluator) any more.
  virtual void StopWaiting() {}
};

using ChiefRoleFactory =
    std::function<absl::StatusOr<std::unique_ptr<ChiefRole>>(const ChiefRoleOptions&)>;

}  // namespace muster
