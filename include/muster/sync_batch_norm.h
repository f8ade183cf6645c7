// Batch normalization with the statistics of the global batch.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <optional>

namespace muster {

struct SyncBatchNormOptions {
  SyncBatchNormOptions(int64_t channels) : channels(channels) {}  // NOLINT: as torch.nn's
  int64_t channels;
  double epsilon = 1e-5;
  // Absent: running statistics are plain means over all steps.
  std::optional<double> momentum = 0.1;
  bool affine = true;  // True: with weight and bias.
};

// Equals torch::nn::BatchNorm over the batches of all replicas together (of one micro-batch), with
// the same parameters and buffers. Input: [batch, channels, ...]. The batch may be empty on some
// replicas. A global batch of one value per channel is refused. Training mode works only in
// train_step, and not with parameter servers.
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
