#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include "initializers.h"
#include "models.h"

namespace muster::nn {
namespace {

// Holds a kernel and a bias. The model applies them.
class Layer : public torch::nn::Module {
 public:
  explicit Layer(const std::vector<int64_t>& shape) {
    weight = register_parameter("weight", GlorotUniform(shape));
    bias = register_parameter("bias", at::zeros({shape[0]}));
  }

  at::Tensor weight, bias;
};

std::shared_ptr<Layer> MakeLayer(const std::vector<int64_t>& shape) {
  return std::make_shared<Layer>(shape);
}

class ConvnetModule : public torch::nn::Module {
 public:
  explicit ConvnetModule(const ConvnetOptions& options) {
    conv = register_module("conv", MakeLayer({options.filters, 1, 3, 3}));
    dense = register_module("dense", MakeLayer({options.hidden, options.filters * 13 * 13}));
    output = register_module("output", MakeLayer({options.classes, options.hidden}));
  }

  std::shared_ptr<Layer> conv, dense, output;
};

class Convnet : public Model {
 public:
  explicit Convnet(const ConvnetOptions& options)
      : module_(std::make_shared<ConvnetModule>(options)) {}

  at::Tensor forward(const at::Tensor& input) override {
    TORCH_CHECK(
        input.dim() == 4 && input.size(1) == 1 && input.size(2) == 28 && input.size(3) == 28,
        "the convnet takes images [batch, 1, 28, 28], not ", input.sizes());
    // Marks the images as channels last, for which CPU kernels are much faster. With one channel,
    // [batch, 1, 28, 28] and [batch, 28, 28, 1] have the same memory, so nothing is copied.
    const at::Tensor images =
        input.is_cpu() ? input.reshape({-1, 28, 28, 1}).permute({0, 3, 1, 2}) : input;
    const ConvnetModule& m = *module_;
    at::Tensor x = at::conv2d(images, m.conv->weight, m.conv->bias);
    // The ReLU after the pooling gives the same result as before it, with a quarter of the work.
    x = at::max_pool2d(x, 2).relu_();
    x = at::linear(x.flatten(1), m.dense->weight, m.dense->bias).relu_();
    return at::linear(x, m.output->weight, m.output->bias);
  }
  std::shared_ptr<torch::nn::Module> module() const override { return module_; }

 private:
  const std::shared_ptr<ConvnetModule> module_;
};

}  // namespace

std::unique_ptr<Model> MakeConvnet(const ConvnetOptions& options) {
  return std::make_unique<Convnet>(options);
}

}  // namespace muster::nn
