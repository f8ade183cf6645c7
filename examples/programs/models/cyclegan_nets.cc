#include "cyclegan_nets.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <memory>
#include <string>

namespace muster::nn {
namespace {

constexpr double kDeviation = 0.02, kSlope = 0.2;
constexpr int64_t kDiscriminatorStrides[] = {2, 2, 1};  // The strides of the middle convolutions.

// The parameters of a convolution.
class Weights : public torch::nn::Module {
 public:
  Weights(at::IntArrayRef shape, int64_t out, bool biased)
      : weight(register_parameter("weight", at::empty(shape).normal_(0, kDeviation))),
        bias(register_parameter("bias", at::zeros({out}), /*requires_grad=*/biased)) {}
  at::Tensor weight, bias;
};

struct ConvOptions {
  int64_t out = 0;      // 0 means the first dimension of the weights.
  bool biased = false;  // If false, the bias is not trained.
};

std::shared_ptr<Weights> AddConv(torch::nn::Module& chain, int64_t place, at::IntArrayRef shape,
                                 const ConvOptions& options = {}) {
  const int64_t out = options.out > 0 ? options.out : shape[0];
  return chain.register_module(std::to_string(place),
                               std::make_shared<Weights>(shape, out, options.biased));
}

// Instance normalization, as group_norm with one group for each channel. LibTorch's instance_norm
// takes twice as long on the CPU. group_norm is slow with channels last, so the input is made
// contiguous.
at::Tensor Normalised(const at::Tensor& x) {
  return at::group_norm(x.contiguous(), /*num_groups=*/x.size(1), {}, {}, /*eps=*/1e-5);
}
at::Tensor Rectified(const at::Tensor& x) { return Normalised(x).relu_(); }
at::Tensor Mirrored(const at::Tensor& x, int64_t by) {
  return at::reflection_pad2d(x, {by, by, by, by});
}

}  // namespace

// The numbers of modules are those of the authors' nn.Sequential, which also counts layers without
// parameters.
ResnetGenerator::ResnetGenerator(const GeneratorOptions& o) {
  const auto model = register_module("model", std::make_shared<torch::nn::Module>("model"));
  const int64_t w = o.width;
  first_ = AddConv(*model, 1, {w, o.channels, 7, 7})->weight;
  down_ = {AddConv(*model, 4, {2 * w, w, 3, 3})->weight,
           AddConv(*model, 7, {4 * w, 2 * w, 3, 3})->weight};
  for (int64_t i = 0; i < o.blocks; ++i) {
    const auto block = model->register_module(std::to_string(10 + i),
                                              std::make_shared<torch::nn::Module>("block"));
    const auto chain =
        block->register_module("conv_block", std::make_shared<torch::nn::Module>("conv_block"));
    const at::Tensor first = AddConv(*chain, 1, {4 * w, 4 * w, 3, 3})->weight;
    blocks_.emplace_back(first, AddConv(*chain, 5, {4 * w, 4 * w, 3, 3})->weight);
  }
  // The weights of a transposed convolution have the input channels first.
  up_ = {AddConv(*model, 10 + o.blocks, {4 * w, 2 * w, 3, 3}, {.out = 2 * w})->weight,
         AddConv(*model, 13 + o.blocks, {2 * w, w, 3, 3}, {.out = w})->weight};
  const auto last = AddConv(*model, 17 + o.blocks, {o.channels, w, 7, 7}, {.biased = true});
  last_ = last->weight;
  last_bias_ = last->bias;
}

at::Tensor ResnetGenerator::forward(const at::Tensor& pictures) {
  at::Tensor x = Rectified(at::conv2d(Mirrored(pictures, 3), first_));
  for (const at::Tensor& down : down_)
    x = Rectified(at::conv2d(x, down, {}, /*stride=*/2, /*padding=*/1));
  for (const auto& [first, second] : blocks_) {
    const at::Tensor inner = Rectified(at::conv2d(Mirrored(x, 1), first));
    x = x + Normalised(at::conv2d(Mirrored(inner, 1), second));
  }
  for (const at::Tensor& up : up_) {
    x = Rectified(
        at::conv_transpose2d(x, up, {}, /*stride=*/2, /*padding=*/1, /*output_padding=*/1));
  }
  return at::conv2d(Mirrored(x, 3), last_, last_bias_).tanh();
}

PatchDiscriminator::PatchDiscriminator(const DiscriminatorOptions& o) {
  const auto model = register_module("model", std::make_shared<torch::nn::Module>("model"));
  const int64_t w = o.width;
  const auto first = AddConv(*model, 0, {w, o.channels, 4, 4}, {.biased = true});
  first_ = first->weight;
  first_bias_ = first->bias;
  for (int64_t i = 0, in = w; i < 3; ++i, in *= 2)
    middle_.push_back(AddConv(*model, 2 + 3 * i, {2 * in, in, 4, 4})->weight);
  const auto last = AddConv(*model, 11, {1, 8 * w, 4, 4}, {.biased = true});
  last_ = last->weight;
  last_bias_ = last->bias;
}

at::Tensor PatchDiscriminator::forward(const at::Tensor& pictures) {
  at::Tensor x = at::leaky_relu(
      at::conv2d(pictures, first_, first_bias_, /*stride=*/2, /*padding=*/1), kSlope);
  for (size_t i = 0; i < middle_.size(); ++i) {
    x = Normalised(at::conv2d(x, middle_[i], {}, kDiscriminatorStrides[i], /*padding=*/1));
    at::leaky_relu_(x, kSlope);
  }
  return at::conv2d(x, last_, last_bias_, /*stride=*/1, /*padding=*/1);
}

}  // namespace muster::nn
