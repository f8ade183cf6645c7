// A convolution without bias and batch normalisation behind it, with torchvision's weights to begin
// with.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

#include <string>

namespace muster::vision {

struct ConvOptions {
  int64_t in = 0, out = 0, kernel = 1, stride = 1, groups = 1;
};
// Padded so that stride 1 keeps the image's size. Kaiming-normal by the fan out.
torch::nn::Conv2d MakeConv(const ConvOptions& options);
torch::nn::BatchNorm2d MakeNorm(int64_t channels);

// Images as a classifier takes them; channels last on the CPU, whose kernels are much faster so.
// `name`: of the model, for the message of the c10::Error that another shape is.
at::Tensor CheckedImages(const at::Tensor& images, const char* name);

// A chain of layers that all replicas of a model call by one name.
class Layer : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& input) = 0;
};

// Convolution "0", normalisation "1".
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

// Layers one after the other, registered as "0", "1", ...
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
