// Batch normalisation by the statistics of the global batch.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <optional>

namespace muster {

struct SyncBatchNormOptions {
  SyncBatchNormOptions(int64_t channels) : channels(channels) {}  // NOLINT: as torch.nn's
  int64_t channels;
  double epsilon = 1e-5;
  std::optional<double> momentum = 0.1;  // none: running statistics are plain means over all steps
  bool affine = true;                    // with weight and bias
};

// Equals torch::nn::BatchNorm over the batches of all replicas together (of one micro-batch), with
// the same parameters and buffers. Input [batch, channels, ...]; the batch may be empty on some
// replicas. A global batch of one value for each channel is refused. In training mode it is for
// train_step alone, and not with parameter servers.
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
