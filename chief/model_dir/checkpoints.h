// The chief's CheckpointSink. It decides when a checkpoint is due and which one is the best, and
// its thread writes them. Training waits for the disk only before the last checkpoint and before
// one that validation found to be the best. A failed write is logged once until a write succeeds
// again, and is counted for result.json.
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

namespace muster {

// Returns whether a checkpoint is due after a step.
bool SaveDue(const CheckpointOptions& options, const SaveMoment& moment);
// Returns whether a larger value of checkpoint.best is better, by checkpoint.best_mode.
bool LargerIsBetter(const CheckpointOptions& options);

struct CheckpointsOptions {
  CheckpointOptions checkpoint;
  Duration deadline = std::chrono::minutes(30);  // Limit of one save.
  // Stored in every checkpoint as its origin.
  std::function<std::string()> run_id;  // May change until the first generation.
  Json job;                             // The resolved job.
  std::map<std::string, std::string> versions;
  std::function<absl::Status()> check_owner;  // See CheckpointSink::CheckOwner; may be null.
  // Called on the writing thread after a checkpoint was published. `final`: it is the job's last
  // one.
  std::function<void(int64_t step, const std::string& name, const std::string& path, bool final)>
      on_published;
};

// Wanted, Save and the Observer's methods are called by the training loop's thread. Any thread may
// call the others.
class Checkpoints : public CheckpointSink, public Observer {
 public:
  static std::unique_ptr<Checkpoints> Make(CheckpointsOptions options);
  // ~Checkpoints does not wait for a write that hangs. The store lives until that write has ended.

  // Starts to write checkpoints. No checkpoint is due before this call. Called once. `best`: the
  // checkpoint that is marked as best so far.
  virtual void Open(std::shared_ptr<checkpoint::Store> store,
                    const std::optional<checkpoint::BestMark>& best) = 0;
  // Returns null before Open.
  virtual std::shared_ptr<checkpoint::Store> store() const = 0;

  // Reports the evaluator's metrics of the checkpoint of `step`. After the first call, these
  // metrics decide which checkpoint is the best, and those of validation no longer do.
  virtual void Evaluated(int64_t step, const std::map<std::string, double>& metrics) = 0;
  // For result.json. Names are relative to model_dir.
  virtual CheckpointRecord Record() const = 0;
};

}  // namespace muster
