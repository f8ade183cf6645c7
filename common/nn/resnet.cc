#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/nn/modules/linear.h>

#include "common/nn/conv_norm.h"
#include "muster/vision.h"

namespace muster::vision {
namespace {

// A residual block. It has convolutions "conv1", "conv2", ..., each with a normalisation "bn1",
// "bn2", ... ReLU follows each convolution except the last, and the sum.
class Block : public Layer {
 public:
  Block(int64_t in, const std::vector<ConvOptions>& convolutions, int64_t stride) {
    for (const ConvOptions& options : convolutions) {
      const std::string number = std::to_string(convs_.size() + 1);
      convs_.push_back(register_module("conv" + number, MakeConv(options)));
      norms_.push_back(register_module("bn" + number, MakeNorm(options.out)));
    }
    const int64_t out = convolutions.back().out;
    if (stride == 1 && in == out) return;
    downsample_ =
        register_module("downsample", std::make_shared<ConvNorm>(ConvOptions{in, out, 1, stride}));
  }
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input;
    for (size_t i = 0; i < convs_.size(); ++i) {
      x = norms_[i]->forward(convs_[i]->forward(x));
      if (i + 1 < convs_.size()) x.relu_();
    }
    return x.add_(downsample_ == nullptr ? input : downsample_->forward(input)).relu_();
  }

 private:
  std::vector<torch::nn::Conv2d> convs_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  std::shared_ptr<ConvNorm> downsample_;  // Converts the input if the output has another shape.
};

std::vector<ConvOptions> Convolutions(bool bottleneck, int64_t in, int64_t width, int64_t stride) {
  if (!bottleneck) return {{in, width, 3, stride}, {width, width, 3}};
  return {{in, width}, {width, width, 3, stride}, {width, 4 * width}};
}

class ResNet : public ImageClassifier {
 public:
  explicit ResNet(const ResNetOptions& options) {
    TORCH_CHECK(options.depth == 18 || options.depth == 50, "a ResNet's depth is 18 or 50, not ",
                options.depth);
    const bool bottleneck = options.depth == 50;
    const std::vector<int> blocks = bottleneck ? std::vector{3, 4, 6, 3} : std::vector{2, 2, 2, 2};
    conv_ = register_module("conv1", MakeConv({3, 64, 7, 2}));
    norm_ = register_module("bn1", MakeNorm(64));
    int64_t in = 64;
    for (size_t stage = 0; stage < blocks.size(); ++stage) {
      const auto chain = std::make_shared<Chain>();
      const int64_t width = int64_t{64} << stage;
      for (int block = 0; block < blocks[stage]; ++block) {
        const int64_t stride = block == 0 && stage > 0 ? 2 : 1;
        const auto convolutions = Convolutions(bottleneck, in, width, stride);
        chain->Add(std::make_shared<Block>(in, convolutions, stride));
        in = convolutions.back().out;
      }
      stages_.push_back(register_module("layer" + std::to_string(stage + 1), chain));
    }
    linear_ = register_module("fc", torch::nn::Linear(in, options.classes));
  }
  at::Tensor features(const at::Tensor& images) override {
    at::Tensor x = norm_->forward(conv_->forward(CheckedImages(images, "ResNet"))).relu_();
    x = at::max_pool2d(x, 3, 2, 1);
    for (const auto& stage : stages_) x = stage->forward(x);
    return x.mean({2, 3});
  }
  at::Tensor classify(const at::Tensor& features) override { return linear_->forward(features); }
  const char* head() const override { return "fc"; }

 private:
  torch::nn::Conv2d conv_ = nullptr;
  torch::nn::BatchNorm2d norm_ = nullptr;
  std::vector<std::shared_ptr<Chain>> stages_;
  torch::nn::Linear linear_ = nullptr;
};

}  // namespace

std::shared_ptr<ImageClassifier> MakeResNet(const ResNetOptions& options) {
  return std::make_shared<ResNet>(options);
}

}  // namespace muster::vision
