// Checkpoints is the chief's CheckpointSink. It decides when a checkpoint is due and which
// checkpoint is the best. Its own thread writes the files. Training waits for an earlier write only
// if the next checkpoint is the last one, or the best one by validation. Failed writes are counted
// for result.json. After the first failure, further failures are not logged until a write succeeds.
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
// Returns whether a larger value of the metric checkpoint.best is better, according to
// checkpoint.best_mode.
bool LargerIsBetter(const CheckpointOptions& options);

struct CheckpointsOptions {
  CheckpointOptions checkpoint;
  Duration deadline = std::chrono::minutes(30);  // Timeout of one save.
  // The next three fields are stored in each checkpoint as its origin.
  std::function<std::string()> run_id;  // The result may change until the first generation.
  Json job;                             // The resolved job.
  std::map<std::string, std::string> versions;
  std::function<absl::Status()> check_owner;  // See CheckpointSink::CheckOwner; may be null.
  // Called on the writing thread after each published checkpoint. `final`: it is the job's last
  // one.
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
  // Returns the outcome of all saves, for result.json. Names are relative to model_dir.
  virtual CheckpointRecord Record() const = 0;
};

}  // namespace muster::chief
