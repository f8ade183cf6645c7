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
#include "muster/program.h"

namespace muster {

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
