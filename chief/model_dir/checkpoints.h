// Checkpoints is the chief's CheckpointSink. It decides when a checkpoint is due and which
// checkpoint is the best. Its own thread writes the files. A checkpoint that becomes due during an
// earlier write is skipped. Only before the last checkpoint, or the best one by validation, does
// training wait for the earlier write. Failed writes are counted for result.json. After the first
// failure, further failures are not logged until a write succeeds.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "chief/model_dir/result.h"
#include "common/checkpoint/store.h"
#include "common/job/job.h"
#include "common/train/membership.h"
#include "common/train/state/checkpointing.h"

namespace muster::chief {

// Returns whether a checkpoint is due after a step.
bool SaveDue(const CheckpointOptions& options, const SaveMoment& moment);
// Returns whether larger values are better for the metric that the option checkpoint.best names.
// The option checkpoint.best_mode decides this.
bool LargerIsBetter(const CheckpointOptions& options);

struct CheckpointsOptions {
  CheckpointOptions checkpoint;
  Duration deadline = std::chrono::minutes(30);  // Timeout of one save.
  // The next three fields are stored in each checkpoint as its origin.
  // The result may change until the first generation is formed.
  std::function<std::string()> run_id;
  Json job;  // The resolved job.
  std::map<std::string, std::string> versions;
  // Returns Superseded if another process owns model_dir. May be null.
  std::function<absl::Status()> check_owner;
  // Called on the writing thread after each published checkpoint. `final` is true for the last
  // checkpoint of the job.
  std::function<void(int64_t step, const std::string& name, const std::string& path, bool final)>
      on_published;
};

// The thread of the training loop calls Wanted, Save and the Observer's methods. Any thread may
// call the other methods.
class Checkpoints : public CheckpointSink, public Observer {
 public:
  static std::unique_ptr<Checkpoints> Make(CheckpointsOptions options);
  // The destructor does not wait for a hanging write. The store lives until that write has ended.

  // Enables checkpoints in `store`. Before this call no checkpoint is due. Called once. `best` is
  // the checkpoint that is marked as the best so far.
  virtual void Open(std::shared_ptr<checkpoint::Store> store,
                    const std::optional<checkpoint::BestMark>& best) = 0;
  // Returns null before Open.
  virtual std::shared_ptr<checkpoint::Store> store() const = 0;

  // Reports the evaluator's metrics of the checkpoint of `step`. From the first call on, these
  // metrics decide which checkpoint is the best, instead of those of validation.
  virtual void Evaluated(int64_t step, const std::map<std::string, double>& metrics) = 0;
  // Returns the outcome of all saves, for result.json. The checkpoints' paths are relative to
  // model_dir.
  virtual CheckpointRecord Record() const = 0;
};

}  // namespace muster::chief
