// Prediction: runs a program's predict() on the replicas of one process. A Predictor uses the
// models of a checkpoint, does not communicate with other processes, and is used by one thread.
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

// Runs predict() on a batch, which is first moved to the replica's device. Returns one row for each
// example, on the CPU. `columns` is described at Prediction. Models are in evaluation mode during
// the call. Returns a ConfigurationError if the program refuses the input, and a ProgramError if it
// fails. Called by the replica's thread.
absl::StatusOr<at::Tensor> PredictBatch(Replica* replica, Precision precision, data::Batch batch,
                                        std::vector<std::string> columns);
// Like PredictBatch, for CallbackContext::predict, which documents the default of `columns`.
absl::StatusOr<at::Tensor> PredictForHook(Replica* replica, Precision precision,
                                          const data::Batch& batch,
                                          const std::vector<std::string>& columns);

struct PredictorOptions {
  Job job;
  ProgramFactory factory;
  std::vector<c10::Device> devices;  // One replica runs on each device.
};

class Predictor {
 public:
  // Builds the replicas, without datasets.
  static absl::StatusOr<std::unique_ptr<Predictor>> Make(PredictorOptions options);
  virtual ~Predictor() = default;

  // See CheckpointReplicas::Restore.
  virtual absl::Status Restore(const checkpoint::Snapshot& snapshot) = 0;
  // Returns one row for each example of `input`, in order, on the CPU. `batch_size` is the number
  // of examples that all replicas together take at a time. Returns a ConfigurationError if the
  // program refuses the input, and a ProgramError if it fails.
  virtual absl::StatusOr<at::Tensor> Predict(
      const data::OpenSplit& input, int64_t batch_size,
      const std::function<void(int64_t done, int64_t total)>& progress) = 0;

  // Encode converts a prompt to an input of Predict. Decode converts the outputs to text. Both call
  // the program.
  virtual absl::StatusOr<data::OpenSplit> Encode(const std::string& prompt) = 0;
  virtual absl::StatusOr<std::string> Decode(const at::Tensor& outputs) = 0;
};

}  // namespace muster
