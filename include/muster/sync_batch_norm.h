// Batch normalization with the mean and variance of the global batch: the batches of all replicas
// (devices) together.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <optional>

namespace muster {

struct SyncBatchNormOptions {
  SyncBatchNormOptions(int64_t channels) : channels(channels) {}  // NOLINT: as torch.nn's
  int64_t channels;
  double epsilon = 1e-5;
  // Without a momentum, each running statistic is the plain mean over all steps.
  std::optional<double> momentum = 0.1;
  bool affine = true;  // If true, the module has weight and bias.
};

// Gives the same result as torch::nn::BatchNorm on the global batch. If the job's
// "accumulate_steps" is above 1, the statistics cover the global micro-batch. Parameters and
// buffers have the names of torch::nn::BatchNorm. The input has shape [batch, channels, ...]. The
// batch may be empty on some replicas. A global batch with only one value per channel is an error.
// Training mode works only in train_step, and not with parameter servers.
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  explicit SyncBatchNormImpl(const SyncBatchNormOptions& options);
  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  at::Tensor forward(const at::Tensor& input);

  SyncBatchNormOptions options;
  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};
TORCH_MODULE(SyncBatchNorm);

}  // namespace muster
