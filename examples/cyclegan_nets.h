// The networks of CycleGAN: Zhu et al., Unpaired Image-to-Image Translation using Cycle-Consistent
// Adversarial Networks (2017). Parameters have the names of the authors' PyTorch code
// ("model.1.weight", "model.10.conv_block.5.weight", ...), so that its weights load into these, and
// back. Weights begin normal(0, 0.02), from LibTorch's default generator.
//
// The bias of a convolution with instance normalisation behind it changes nothing, for the
// normalisation takes it off again: it is there by its name, but not used and not trained.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace muster::nn {

struct GeneratorOptions {
  int64_t channels = 3;  // of pictures
  int64_t width = 64;  // channels behind the first convolution; twice and four times as many below
  int64_t blocks = 9;  // residual ones
};

// Pictures [batch, channels, height, width] from -1 to 1 to such of the same shape. batch may be 0;
// height and width are multiples of 4 from 8 on.
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

// Pictures to [batch, 1, h, w]: how real each patch of 70 x 70 pixels looks, near 1 where it does.
// Height and width are from 24 on.
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
