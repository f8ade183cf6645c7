// Checkpoints is the chief's CheckpointSink (common/train/state/checkpointing.h). It decides when a
// checkpoint is due and which checkpoint is the best. A thread of Checkpoints writes the files,
// while training continues. While a checkpoint is being written, Checkpoints skips all further
// checkpoints that become due. There are two exceptions: the last checkpoint (at the end or at a
// stop), and a checkpoint with a new best value of checkpoint.best. In these two cases, training
// waits until the previous checkpoint is written. result.json has the number of failed writes.
// Checkpoints logs a failed write only if the previous write succeeded.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "chief/model_dir/result.h"
#include "common/checkpoint/store.h"
#include "common/job/job.h"
#include "common/train/observer.h"
#include "common/train/state/checkpointing.h"

namespace muster::chief {

// Returns whether a checkpoint is due at `moment`, which is after a step.
bool SaveDue(const CheckpointOptions& options, const SaveMoment& moment);
// Returns whether larger values of the metric in the option checkpoint.best are better. The option
// checkpoint.best_mode decides this, or the metric's name if best_mode is "auto".
bool LargerIsBetter(const CheckpointOptions& options);

struct CheckpointsOptions {
  CheckpointOptions checkpoint;
  Duration deadline = std::chrono::minutes(30);  // Timeout of one save.
  // Each checkpoint stores the next three values: run id, job and versions. The run id may change
  // until training begins.
  std::function<std::string()> run_id;
  Json job;  // The job with defaults filled in.
  std::map<std::string, std::string> versions;
  // Returns Superseded if another chief has taken model_dir. May be null.
  std::function<absl::Status()> check_owner;
  // Called on the writing thread after each published checkpoint. `final` is true for the last
  // checkpoint of the job.
  std::function<void(int64_t step, const std::string& name, const std::string& path, bool final)>
      on_published;
};

// Wanted, Save and the methods of Observer are called on the thread of the training loop. Any
// thread may call the other methods. The destructor waits at most a second for a write in progress.
// A write that hangs longer keeps the store alive until the write ends.
class Checkpoints : public CheckpointSink, public Observer {
 public:
  static std::unique_ptr<Checkpoints> Make(CheckpointsOptions options);

  // Enables checkpoints in `store`. Before this call no checkpoint is due. Called once. `best` is
  // the checkpoint in `store` that is marked as the best one.
  virtual void Open(std::shared_ptr<checkpoint::Store> store,
                    const std::optional<checkpoint::BestMark>& best) = 0;
  // Returns null before Open.
  virtual std::shared_ptr<checkpoint::Store> store() const = 0;

  // Reports metrics that the evaluator task has measured on the checkpoint of `step`. After the
  // first call, the evaluator's metrics decide which checkpoint is the best. Metrics of validation
  // or training no longer count.
  virtual void Evaluated(int64_t step, const std::map<std::string, double>& metrics) = 0;
  // Returns the outcome of all saves, for result.json.
  virtual CheckpointRecord Record() const = 0;
};

}  // namespace muster::chief
