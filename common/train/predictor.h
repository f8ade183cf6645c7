// Runs a program's predict() on the replicas of one process. A replica is one device's copy of the
// model. A Predictor loads the models of a checkpoint and does not communicate with other
// processes. One thread uses a Predictor.
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

// Implements CallbackContext::predict. Moves `batch` to the replica's device, and runs predict() on
// it. Returns a CPU tensor with one row for each example. `columns` has a name for each tensor of
// `batch` (see muster::Prediction). If `columns` is empty, a single tensor has the name "x", and
// several tensors have the names "0", "1" and so on. Models are in evaluation mode during the call.
// Returns a ConfigurationError if the program refuses the input, and a ProgramError if the program
// fails. Called in the replica's thread.
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
  // Builds the replicas. Does not open the program's datasets.
  static absl::StatusOr<std::unique_ptr<Predictor>> Make(PredictorOptions options);
  virtual ~Predictor() = default;

  // Loads the models of `snapshot`, the contents of a checkpoint, into all replicas. Returns the
  // errors of CheckpointReplicas::Restore.
  virtual absl::Status Restore(const checkpoint::Snapshot& snapshot) = 0;
  // Runs predict() on all examples of `input`. Returns a CPU tensor with one row for each example,
  // in the order of `input`. `batch_size` is the number of examples that all replicas together
  // process at a time. `progress` counts batches and may be null. Returns a ConfigurationError if
  // the program refuses the input, and a ProgramError if the program fails.
  virtual absl::StatusOr<at::Tensor> Predict(
      const data::OpenSplit& input, int64_t batch_size,
      const std::function<void(int64_t done, int64_t total)>& progress) = 0;

  // Encode converts a prompt to an input of Predict, and Decode converts the outputs of Predict to
  // text. They call the program's encode() and decode().
  virtual absl::StatusOr<data::OpenSplit> Encode(const std::string& prompt) = 0;
  virtual absl::StatusOr<std::string> Decode(const at::Tensor& outputs) = 0;
};

}  // namespace muster
