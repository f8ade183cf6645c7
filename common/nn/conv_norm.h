// A convolution without bias followed by batch normalisation, with torchvision's initial weights.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

#include <string>

namespace muster::vision {

struct ConvOptions {
  int64_t in = 0, out = 0, kernel = 1, stride = 1, groups = 1;
};
// Returns a convolution with padding that keeps the image's size at stride 1. The weights are
// initialized with Kaiming-normal by fan-out.
torch::nn::Conv2d MakeConv(const ConvOptions& options);
torch::nn::BatchNorm2d MakeNorm(int64_t channels);

// Checks the shape of the images for a classifier and returns them in the fastest layout, channels
// last. Throws c10::Error for a wrong shape. `name` is the model's name in the error.
at::Tensor CheckedImages(const at::Tensor& images, const char* name);

// A layer with a virtual forward(), so that a Chain can hold layers of different kinds.
class Layer : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& input) = 0;
};

// A convolution, registered as "0", followed by a batch normalisation, registered as "1".
class ConvNorm : public Layer {
 public:
  explicit ConvNorm(const ConvOptions& options)
      : conv_(register_module("0", MakeConv(options))),
        norm_(register_module("1", MakeNorm(options.out))) {}
  at::Tensor forward(const at::Tensor& input) override {
    return norm_->forward(conv_->forward(input));
  }

 private:
  torch::nn::Conv2d conv_;
  torch::nn::BatchNorm2d norm_;
};

// Consecutive layers, registered as "0", "1", ...
class Chain : public Layer {
 public:
  void Add(std::shared_ptr<Layer> layer) {
    layers_.push_back(register_module(std::to_string(layers_.size()), std::move(layer)));
  }
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input;
    for (const auto& layer : layers_) x = layer->forward(x);
    return x;
  }

 private:
  std::vector<std::shared_ptr<Layer>> layers_;
};

}  // namespace muster::vision
