// Image classifiers with the same results as the models of torchvision 0.26. Parameters and buffers
// have torchvision's names, so Muster and torchvision can load each other's weights. Initial
// weights have torchvision's distributions, and are drawn from LibTorch's default generator.
//
//   net_ = muster::vision::MakeMobileNetV2({.classes = 2});
//   builder.model("net", net_);                      // "net.features.0.0.weight", ...
//   builder.load("net", "mobilenet_v2.safetensors");
//
// Each replica (device) creates its own model. Only that replica's thread may use the model.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

namespace muster::vision {

class ImageClassifier : public torch::nn::Module {
 public:
  // Returns the input of the last layer, averaged over all positions of the image: [batch,
  // features]. Images are floating-point [batch, 3, height, width], normalized in the same way as
  // the images with which the weights were trained. `batch` may be 0. Throws c10::Error for any
  // other shape.
  virtual at::Tensor features(const at::Tensor& images) = 0;
  // Applies the last layer to [batch, features]. If the model has a dropout, applies the dropout
  // first. Returns logits [batch, classes].
  virtual at::Tensor classify(const at::Tensor& features) = 0;
  at::Tensor forward(const at::Tensor& images) { return classify(features(images)); }
  // Returns the name of the last layer's module, "classifier" or "fc". All other modules together
  // are the base. Fine-tuning usually starts with a frozen base.
  virtual const char* head() const = 0;

  // Freezes or unfreezes the base: sets requires_grad of the base's parameters to !frozen. The
  // batch normalization of a frozen base is in eval mode, so the buffers of the base do not
  // change. Call freeze_base() between steps, on all replicas. Call freeze_base() again after
  // torch::nn::Module::train(), which would end the eval mode.
  void freeze_base(bool frozen);
};

struct MobileNetV2Options {
  int64_t classes = 1000;
  double width = 1.0;    // torchvision's width_mult.
  double dropout = 0.2;  // The probability of the dropout before the last layer.
};
// Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks (2018).
std::shared_ptr<ImageClassifier> MakeMobileNetV2(const MobileNetV2Options& options = {});

struct ResNetOptions {
  int depth = 50;  // 18 or 50. Any other depth throws c10::Error.
  int64_t classes = 1000;
};
// He et al., Deep Residual Learning for Image Recognition (2015). The 3 x 3 convolution of a
// bottleneck block has the block's stride.
std::shared_ptr<ImageClassifier> MakeResNet(const ResNetOptions& options = {});

}  // namespace muster::vision
