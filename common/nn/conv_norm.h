// The building block of the image classifiers: a convolution without bias, followed by a batch
// normalisation. The weights are initialized as in torchvision.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

#include <string>

namespace muster::vision {

// `in` and `out` are numbers of channels.
struct ConvOptions {
  int64_t in = 0, out = 0, kernel = 1, stride = 1, groups = 1;
};
// Returns a convolution with the padding (kernel - 1) / 2. With an odd kernel and stride 1, the
// output has the height and width of the input. The initial weights are Kaiming-normal with mode
// fan_out.
torch::nn::Conv2d MakeConv(const ConvOptions& options);
// Returns a batch normalisation with the defaults of PyTorch.
torch::nn::BatchNorm2d MakeNorm(int64_t channels);

// Returns the images in the memory format channels_last, in which convolutions are fastest. Throws
// c10::Error if the images do not have the shape [batch, 3, height, width] and a floating-point
// type. `name` is the name of the model, for the error.
at::Tensor CheckedImages(const at::Tensor& images, const char* name);

// A layer with a virtual forward(), so that a Chain can hold layers of different kinds.
class Layer : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& input) = 0;
};

// A convolution followed by a batch normalisation, registered as modules "0" and "1".
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

// Layers that run one after another, registered as modules "0", "1", ...
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
