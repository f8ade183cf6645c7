#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>

#include "common/nn/conv_norm.h"
#include "muster/vision.h"

namespace muster::vision {
namespace {

// Returns the nearest multiple of 8 that is at least 8 and at least nine tenths of `channels`.
int64_t Rounded(double channels) {
  const int64_t rounded = std::max<int64_t>(8, static_cast<int64_t>(channels + 4) / 8 * 8);
  return static_cast<double>(rounded) < 0.9 * channels ? rounded + 8 : rounded;
}

class ConvNormReLU6 : public ConvNorm {
 public:
  using ConvNorm::ConvNorm;
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = ConvNorm::forward(input);
    return at::hardtanh_(x, 0, 6);
  }
};

// The block of MobileNetV2. "conv" has its layers: an expansion unless its factor is 1, a filter
// for each channel, and a reduction without activation.
class InvertedResidual : public Layer {
 public:
  InvertedResidual(int64_t in, int64_t out, int64_t stride, int64_t expand)
      : residual_(stride == 1 && in == out) {
    const auto conv = std::make_shared<torch::nn::Module>("conv");
    const int64_t hidden = in * expand;
    if (expand != 1) layers_.push_back(std::make_shared<ConvNormReLU6>(ConvOptions{in, hidden}));
    layers_.push_back(
        std::make_shared<ConvNormReLU6>(ConvOptions{hidden, hidden, 3, stride, hidden}));
    for (size_t i = 0; i < layers_.size(); ++i)
      conv->register_module(std::to_string(i), layers_[i]);
    narrow_ = conv->register_module(std::to_string(layers_.size()), MakeConv({hidden, out}));
    norm_ = conv->register_module(std::to_string(layers_.size() + 1), MakeNorm(out));
    register_module("conv", conv);
  }
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input;
    for (const auto& layer : layers_) x = layer->forward(x);
    x = norm_->forward(narrow_->forward(x));
    return residual_ ? x.add_(input) : x;
  }

 private:
  const bool residual_;
  std::vector<std::shared_ptr<Layer>> layers_;
  torch::nn::Conv2d narrow_ = nullptr;
  torch::nn::BatchNorm2d norm_ = nullptr;
};

class MobileNetV2 : public ImageClassifier {
 public:
  explicit MobileNetV2(const MobileNetV2Options& options) {
    struct Stage {
      int64_t expand, channels, blocks, stride;
    };
    constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                 {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    int64_t in = Rounded(32 * options.width);
    features_->Add(std::make_shared<ConvNormReLU6>(ConvOptions{3, in, 3, 2}));
    for (const auto& [expand, channels, blocks, stride] : kStages) {
      const int64_t out = Rounded(static_cast<double>(channels) * options.width);
      for (int64_t block = 0; block < blocks; ++block) {
        features_->Add(
            std::make_shared<InvertedResidual>(in, out, block == 0 ? stride : 1, expand));
        in = out;
      }
    }
    const int64_t last = Rounded(1280 * std::max(1.0, options.width));
    features_->Add(std::make_shared<ConvNormReLU6>(ConvOptions{in, last}));
    register_module("features", features_);
    const auto classifier = std::make_shared<torch::nn::Module>("classifier");
    dropout_ = classifier->register_module("0", torch::nn::Dropout(options.dropout));
    linear_ = classifier->register_module("1", torch::nn::Linear(last, options.classes));
    register_module("classifier", classifier);
    torch::nn::init::normal_(linear_->weight, 0, 0.01);
    torch::nn::init::zeros_(linear_->bias);
  }
  at::Tensor features(const at::Tensor& images) override {
    return features_->forward(CheckedImages(images, "MobileNetV2")).mean({2, 3});
  }
  at::Tensor classify(const at::Tensor& features) override {
    return linear_->forward(dropout_->forward(features));
  }
  const char* head() const override { return "classifier"; }

 private:
  const std::shared_ptr<Chain> features_ = std::make_shared<Chain>();
  torch::nn::Dropout dropout_ = nullptr;
  torch::nn::Linear linear_ = nullptr;
};

}  // namespace

std::shared_ptr<ImageClassifier> MakeMobileNetV2(const MobileNetV2Options& options) {
  return std::make_shared<MobileNetV2>(options);
}

}  // namespace muster::vision
