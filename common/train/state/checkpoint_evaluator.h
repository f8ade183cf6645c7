// Evaluates checkpoints with the program's models, on the replicas of one process. Does not
// communicate with other processes, and does not restore optimizers. A replica is one device's copy
// of the model. One thread uses a CheckpointEvaluator.
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
  // The split to evaluate. If absent, the validation split is evaluated, or the test split if there
  // is no validation split.
  std::optional<Split> split = std::nullopt;
};

// Returns the number of examples that all replicas together take in one batch of an evaluation.
// `replicas` is the number of replicas. `global_batch_size` is the batch size of the training run.
// If it is 0 (unknown), the job's global batch size is used, or 32 if the job has none. If the job
// has evaluate.batch_size or a per-replica batch size, that size is used for each replica. This
// helps if the evaluator has fewer devices than training had.
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
    // Called after each batch. `done` and `total` count batches. May be null.
    std::function<void(int64_t done, int64_t total)> progress;
    // Returns true if the evaluation must stop. Called in the threads of all replicas. With one
    // replica, it is called before each batch. With several replicas, it is called about four times
    // a second. May be null.
    std::function<bool()> cancelled;
  };
  // Restores the models from `snapshot`, the contents of a checkpoint, and evaluates them once on
  // all examples. Returns Preempted if `cancelled` returned true.
  virtual absl::StatusOr<CheckpointEvaluation> Evaluate(const checkpoint::Snapshot& snapshot,
                                                        const Hooks& hooks) = 0;
};

}  // namespace muster
