#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <string>

#include "initializers.h"
#include "models.h"

namespace muster::nn {
namespace {

class MlpModule : public torch::nn::Module {
 public:
  explicit MlpModule(const std::vector<int64_t>& widths) {
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      const std::string layer = "layer" + std::to_string(i);
      weights.push_back(
          register_parameter(layer + "_weight", GlorotUniform({widths[i + 1], widths[i]})));
      biases.push_back(register_parameter(layer + "_bias", at::zeros({widths[i + 1]})));
    }
  }

  std::vector<at::Tensor> weights, biases;
};

class Mlp : public Model {
 public:
  explicit Mlp(const std::vector<int64_t>& widths) : module_(std::make_shared<MlpModule>(widths)) {}

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input;
    for (size_t i = 0; i < module_->weights.size(); ++i) {
      if (i > 0) x = at::relu(x);
      x = at::linear(x, module_->weights[i], module_->biases[i]);
    }
    return x;
  }
  std::shared_ptr<torch::nn::Module> module() const override { return module_; }

 private:
  const std::shared_ptr<MlpModule> module_;
};

}  // namespace

std::unique_ptr<Model> MakeMlp(const std::vector<int64_t>& widths) {
  return std::make_unique<Mlp>(widths);
}

}  // namespace muster::nn
