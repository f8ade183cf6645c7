// Computes the outputs of a program's predict() with a checkpoint's models, on the replicas of one
// process. Does not communicate with other processes. Used by one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/data/job/formats.h"
#include "common/job/job.h"
#include "muster/data.h"
#include "muster/program.h"

namespace muster {

class Replica;

// Returns the output of the program's predict() for a batch, on the CPU: one row for each example.
// Moves the batch to the replica's device. `columns`: see Prediction. Called by the replica's
// thread; models are in evaluation mode meanwhile. Returns a ConfigurationError if the program
// refuses the input, and a ProgramError if it fails.
absl::StatusOr<at::Tensor> PredictBatch(Replica* replica, Precision precision, data::Batch batch,
                                        std::vector<std::string> columns);
// Like PredictBatch. CallbackContext::predict documents the default of `columns`.
absl::StatusOr<at::Tensor> PredictForHook(Replica* replica, Precision precision,
                                          const data::Batch& batch,
                                          const std::vector<std::string>& columns);

struct PredictorOptions {
  Job job;
  ProgramFactory factory;
  std::vector<c10::Device> devices;  // One replica each.
};

class Predictor {
 public:
  // Builds the replicas, without datasets.
  static absl::StatusOr<std::unique_ptr<Predictor>> Make(PredictorOptions options);
  virtual ~Predictor() = default;

  // See CheckpointReplicas::Restore.
  virtual absl::Status Restore(const checkpoint::Snapshot& snapshot) = 0;
  // Returns one row for each example, in their order, on the CPU. All replicas together take
  // `batch_size` examples at a time. Returns a ConfigurationError if the program refuses the input,
  // and a ProgramError if it fails.
  virtual absl::StatusOr<at::Tensor> Predict(
      const data::OpenSplit& input, int64_t batch_size,
      const std::function<void(int64_t done, int64_t total)>& progress) = 0;

  // Encode turns a prompt into an input; Decode turns outputs into text. Both call the program.
  virtual absl::StatusOr<data::OpenSplit> Encode(const std::string& prompt) = 0;
  virtual absl::StatusOr<std::string> Decode(const at::Tensor& outputs) = 0;
};

}  // namespace muster
