// Evaluates checkpoints with the program's models, on the replicas of one process. Does not
// communicate with other processes. Optimizers are not restored. Used by one thread.
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
  std::vector<c10::Device> devices;  // One replica runs on each device.
  // If absent, the validation split, or the test split for a program without a validation split.
  std::optional<Split> split = std::nullopt;
};

// Returns the global batch size for evaluating a checkpoint on `replicas` replicas.
// `global_batch_size` is that of the training run, or 0 if unknown. If few devices lack the memory
// for that batch, the job can limit it with a per-replica batch size or evaluate.batch_size.
int64_t BatchSizeAfterTraining(const Job& job, int64_t global_batch_size, int replicas);

class CheckpointEvaluator {
 public:
  // Builds the replicas and the dataset. Returns kNotFound if the split does not exist.
  static absl::StatusOr<std::unique_ptr<CheckpointEvaluator>> Make(
      CheckpointEvaluatorOptions options);
  virtual ~CheckpointEvaluator() = default;

  virtual Split split() const = 0;
  virtual int64_t examples() const = 0;  // Examples in the split.

  struct Hooks {
    std::function<void(int64_t done, int64_t total)> progress;  // Counts batches. May be null.
    // Returns true if the pass must stop. Called in the threads of all replicas: before each batch
    // if there is one replica, otherwise several times a second. May be null.
    std::function<bool()> cancelled;
  };
  // Restores the models from the snapshot and makes one pass. Returns Preempted if the pass was
  // cancelled.
  virtual absl::StatusOr<CheckpointEvaluation> Evaluate(const checkpoint::Snapshot& snapshot,
                                                        const Hooks& hooks) = 0;
};

}  // namespace muster
