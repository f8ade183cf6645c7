// Evaluates checkpoints: the replicas of one process, with a program's models and the split that
// the training loop would validate on, but no optimizer at work and nobody else to talk to. Used by
// one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/train/job.h"
#include "common/train/replica.h"
#include "muster/program.h"

namespace muster {

struct CheckpointEvaluation {
  int64_t step = 0;  // the checkpoint's
  Split split = Split::kValidation;
  std::map<std::string, double> metrics;  // "loss" and the program's
  int64_t examples = 0;
  double seconds = 0;
};

struct CheckpointEvaluatorOptions {
  Job job;
  ProgramFactory factory;
  std::vector<c10::Device> devices;  // one replica each
  // Absent: validation, or where the program declares none, test.
  std::optional<Split> split = std::nullopt;
};

// How many examples so many replicas take at once, all together, with a checkpoint of a run whose
// global batch had that size (0: not known). The batch of the whole job may not fit on fewer
// devices, but the job says so only with a batch size for each replica, or evaluate.batch_size.
int64_t BatchSizeAfterTraining(const Job& job, int64_t global_batch_size, int replicas);

class CheckpointEvaluator {
 public:
  // Builds the replicas and the dataset. kNotFound where the program does not declare it.
  static absl::StatusOr<std::unique_ptr<CheckpointEvaluator>> Make(
      CheckpointEvaluatorOptions options);
  virtual ~CheckpointEvaluator() = default;

  virtual Split split() const = 0;
  virtual int64_t examples() const = 0;  // of the split

  struct Hooks {
    std::function<void(int64_t done, int64_t total)> progress;  // batches; may be null
    // Asked by any replica's thread, before each batch where there is one replica and several times
    // a second otherwise; may be null.
    std::function<bool()> cancelled;
  };
  // Takes the models over from the snapshot, and makes one pass. Preempted: it was cancelled.
  virtual absl::StatusOr<CheckpointEvaluation> Evaluate(const checkpoint::Snapshot& snapshot,
                                                        const Hooks& hooks) = 0;
};

}  // namespace muster
