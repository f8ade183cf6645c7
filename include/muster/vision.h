// Image classifiers whose arithmetic, and whose names of parameters and buffers, are torchvision's
// (0.26): weights that Python saved from a torchvision model load into these, and back. Weights
// begin as torchvision begins them, from LibTorch's default generator.
//
//   net_ = muster::vision::MakeMobileNetV2({.classes = 2});
//   builder.model("net", net_);                      // "net.features.0.0.weight", ...
//   builder.load("net", "mobilenet_v2.safetensors");
//
// One per replica, used by that replica's thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

namespace muster::vision {

class ImageClassifier : public torch::nn::Module {
 public:
  // Images [batch, 3, height, width], floating-point, normalised as the weights want them; batch
  // may be 0. Returns [batch, features], averaged over the image: what the last layer gets. A
  // c10::Error where the shape is another one.
  virtual at::Tensor features(const at::Tensor& images) = 0;
  // The last layer alone, behind its dropout: [batch, features] to logits [batch, classes].
  virtual at::Tensor classify(const at::Tensor& features) = 0;
  at::Tensor forward(const at::Tensor& images) { return classify(features(images)); }
  // The module of the last layer, "classifier" or "fc": all others are the base, which fine-tuning
  // freezes at first.
  virtual const char* head() const = 0;

  // Freezes (or unfreezes) the base for training: requires_grad of its parameters, and
  // evaluation mode for its batch normalisation while it is frozen, so that its buffers stay as
  // they are too. Call it between steps, on all replicas, and again after train().
  void freeze_base(bool frozen);
};

struct MobileNetV2Options {
  int64_t classes = 1000;
  double width = 1.0;    // torchvision's width_mult
  double dropout = 0.2;  // before the last layer
};
// Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks (2018).
std::shared_ptr<ImageClassifier> MakeMobileNetV2(const MobileNetV2Options& options = {});

struct ResNetOptions {
  int depth = 50;  // 18 or 50; a c10::Error for any other
  int64_t classes = 1000;
};
// He et al., Deep Residual Learning for Image Recognition (2015), with the stride in a bottleneck's
// 3 x 3 convolution.
std::shared_ptr<ImageClassifier> MakeResNet(const ResNetOptions& options = {});

}  // namespace muster::vision
