// The networks of CycleGAN: Zhu et al., Unpaired Image-to-Image Translation using Cycle-Consistent
// Adversarial Networks (2017). Parameters have the names of the authors' PyTorch code
// ("model.1.weight", "model.10.conv_block.5.weight", ...), so these networks and the authors' code
// can load each other's weights. Initial weights are drawn from LibTorch's default generator, with
// mean 0 and standard deviation 0.02.
//
// Instance normalization after a convolution cancels the convolution's bias. Such a bias is only
// registered so that the names match. The bias is not used and not trained.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace muster::nn {

struct GeneratorOptions {
  int64_t channels = 3;  // The number of channels of pictures.
  // The number of channels after the first convolution. Each of the next two convolutions doubles
  // this number.
  int64_t width = 64;
  int64_t blocks = 9;  // The number of residual blocks.
};

// Translates pictures [batch, channels, height, width] with values in [-1, 1] to pictures of the
// same shape and range. `batch` may be 0. Height and width must be multiples of 4, and at least 8.
class ResnetGenerator : public torch::nn::Module {
 public:
  explicit ResnetGenerator(const GeneratorOptions& options);
  at::Tensor forward(const at::Tensor& pictures);

 private:
  at::Tensor first_, last_, last_bias_;
  std::vector<at::Tensor> down_, up_;
  std::vector<std::pair<at::Tensor, at::Tensor>> blocks_;
};

struct DiscriminatorOptions {
  int64_t channels = 3, width = 64;
};

// Predicts for each patch of 70 x 70 pixels whether the patch is from a real picture. Returns one
// value per patch, [batch, 1, h, w]: near 1 if the patch looks real. Height and width of pictures
// must be at least kLeastSide.
class PatchDiscriminator : public torch::nn::Module {
 public:
  static constexpr int64_t kLeastSide = 24;
  explicit PatchDiscriminator(const DiscriminatorOptions& options);
  at::Tensor forward(const at::Tensor& pictures);

 private:
  at::Tensor first_, first_bias_, last_, last_bias_;
  std::vector<at::Tensor> middle_;
};

}  // namespace muster::nn
