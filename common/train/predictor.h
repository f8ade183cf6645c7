// The outputs of a program's predict() for an input, by the replicas of one process, with a
// checkpoint's models and nobody else to talk to. Used by one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/data/formats.h"
#include "common/train/job.h"
#include "muster/data.h"
#include "muster/program.h"

namespace muster {

class Replica;

// What the program's predict() makes of a batch, which is moved to the replica's device: one row
// for each example, on the CPU. `columns`: Prediction's. By the replica's thread, with models in
// evaluation mode meanwhile. A ConfigurationError where the program refuses the input,
// ProgramError where it fails.
absl::StatusOr<at::Tensor> PredictBatch(Replica* replica, Precision precision, data::Batch batch,
                                        std::vector<std::string> columns);
// Likewise, without columns as CallbackContext::predict says.
absl::StatusOr<at::Tensor> PredictForHook(Replica* replica, Precision precision,
                                          const data::Batch& batch,
                                          const std::vector<std::string>& columns);

struct PredictorOptions {
  Job job;
  ProgramFactory factory;
  std::vector<c10::Device> devices;  // one replica each
};

class Predictor {
 public:
  // Builds the replicas; datasets are not made.
  static absl::StatusOr<std::unique_ptr<Predictor>> Make(PredictorOptions options);
  virtual ~Predictor() = default;

  // As CheckpointReplicas' Restore.
  virtual absl::Status Restore(const checkpoint::Snapshot& snapshot) = 0;
  // On the CPU: one row for each example, in their order, which all replicas together take
  // `batch_size` at a time. A ConfigurationError where the input is not one of the program's,
  // ProgramError where the program fails.
  virtual absl::StatusOr<at::Tensor> Predict(
      const data::OpenSplit& input, int64_t batch_size,
      const std::function<void(int64_t done, int64_t total)>& progress) = 0;

  // A prompt as an input, and what the program says of its outputs.
  virtual absl::StatusOr<data::OpenSplit> Encode(const std::string& prompt) = 0;
  virtual absl::StatusOr<std::string> Decode(const at::Tensor& outputs) = 0;
};

}  // namespace muster
