#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/module.h>

#include "initializers.h"
#include "models.h"

namespace muster::nn {
namespace {

class LinearUnitModule : public torch::nn::Module {
 public:
  explicit LinearUnitModule(const LinearUnitOptions& options) {
    weight = register_parameter("weight", Kernel(options));
    bias = register_parameter("bias", at::full({1}, options.bias, at::kFloat));
  }

  at::Tensor weight, bias;

 private:
  static at::Tensor Kernel(const LinearUnitOptions& options) {
    if (options.kernel.empty()) return GlorotUniform({1, options.features});
    const at::Tensor given = at::tensor(options.kernel).to(at::kFloat).unsqueeze(0);
    return given.expand({1, options.features}).contiguous();
  }
};

class LinearUnitImpl : public LinearUnit {
 public:
  explicit LinearUnitImpl(const LinearUnitOptions& options)
      : module_(std::make_shared<LinearUnitModule>(options)) {}
  at::Tensor forward(const at::Tensor& input) override {
    // Does not call a matrix product. Its kernels start threads for any size, and may sum a row in
    // another order if the batch size changes.
    return input.mul(module_->weight).sum(1).add(module_->bias);
  }
  std::shared_ptr<torch::nn::Module> module() const override { return module_; }
  at::Tensor kernel() const override { return module_->weight; }

 private:
  const std::shared_ptr<LinearUnitModule> module_;
};

}  // namespace

std::unique_ptr<LinearUnit> MakeLinearUnit(const LinearUnitOptions& options) {
  return std::make_unique<LinearUnitImpl>(options);
}

}  // namespace muster::nn
