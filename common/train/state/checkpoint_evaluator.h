// Evaluates checkpoints with the replicas of one process, which communicate with no other process.
// Uses the program's models and the split that the training loop would validate on. Optimizers are
// not used. Used by one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/job/job.h"
#include "common/train/replica/replica.h"
#include "muster/program.h"

namespace muster {

struct CheckpointEvaluation {
  int64_t step = 0;  // The checkpoint's step.
  Split split = Split::kValidation;
  std::map<std::string, double> metrics;  // "loss" and the program's metrics.
  int64_t examples = 0;
  double seconds = 0;
};

struct CheckpointEvaluatorOptions {
  Job job;
  ProgramFactory factory;
  std::vector<c10::Device> devices;  // One replica each.
  // Absent: validation, or test if the program declares no validation.
  std::optional<Split> split = std::nullopt;
};

// Returns how many examples `replicas` replicas take at once, in total, for a checkpoint of a run
// with this global batch size (0: not known). Fewer devices may lack the memory for the job's
// global batch. Set a per-replica batch size or evaluate.batch_size in the job to limit it.
int64_t BatchSizeAfterTraining(const Job& job, int64_t global_batch_size, int replicas);

class CheckpointEvaluator {
 public:
  // Builds the replicas and the dataset. Returns kNotFound if the program does not declare the
  // split.
  static absl::StatusOr<std::unique_ptr<CheckpointEvaluator>> Make(
      CheckpointEvaluatorOptions options);
  virtual ~CheckpointEvaluator() = default;

  virtual Split split() const = 0;
  virtual int64_t examples() const = 0;  // Examples in the split.

  struct Hooks {
    std::function<void(int64_t done, int64_t total)> progress;  // In batches. May be null.
    // Called by any replica's thread: before each batch with one replica, else several times a
    // second. May be null.
    std::function<bool()> cancelled;
  };
  // Restores the models from the snapshot and makes one pass. Returns Preempted if it was
  // cancelled.
  virtual absl::StatusOr<CheckpointEvaluation> Evaluate(const checkpoint::Snapshot& snapshot,
                                                        const Hooks& hooks) = 0;
};

}  // namespace muster
