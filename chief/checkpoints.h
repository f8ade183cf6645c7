// The chief's CheckpointSink: when a checkpoint is due, the thread that writes them, and which one
// is the best. Training waits for the disk before the last checkpoint and one that validation found
// to be the best, no other. What cannot be written is said in the log, once until it works again,
// and counted for result.json.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "chief/result.h"
#include "common/checkpoint/store.h"
#include "common/train/checkpointing.h"
#include "common/train/job.h"
#include "common/train/membership.h"

namespace muster {

// Whether a checkpoint is due after a step.
bool SaveDue(const CheckpointOptions& options, const SaveMoment& moment);
// Of checkpoint.best, as checkpoint.best_mode says.
bool LargerIsBetter(const CheckpointOptions& options);

struct CheckpointsOptions {
  CheckpointOptions checkpoint;
  Duration deadline = std::chrono::minutes(30);  // of one save
  // What every checkpoint says of where it comes from.
  std::function<std::string()> run_id;  // may change until the first generation
  Json job;                             // resolved
  std::map<std::string, std::string> versions;
  std::function<absl::Status()> check_owner;  // CheckpointSink::CheckOwner; may be null
  // After a checkpoint was published, on the thread that writes; `final`: the last one of the job.
  std::function<void(int64_t step, const std::string& name, const std::string& path, bool final)>
      on_published;
};

// Wanted, Save and the Observer's calls come from the loop's thread; the others from any.
class Checkpoints : public CheckpointSink, public Observer {
 public:
  static std::unique_ptr<Checkpoints> Make(CheckpointsOptions options);
  // ~Checkpoints leaves a write that does not end to itself: the store lives until that is over.

  // From now on checkpoints are written; before, none is wanted. Once. `best`: the one that is
  // marked so far.
  virtual void Open(std::shared_ptr<checkpoint::Store> store,
                    const std::optional<checkpoint::BestMark>& best) = 0;
  // Null before Open.
  virtual std::shared_ptr<checkpoint::Store> store() const = 0;

  // The evaluator's metrics of the checkpoint of `step`. From the first time on they decide which
  // one is the best, and validation's no longer do.
  virtual void Evaluated(int64_t step, const std::map<std::string, double>& metrics) = 0;
  // For result.json. The names are relative to model_dir.
  virtual CheckpointRecord Record() const = 0;
};

}  // namespace muster
