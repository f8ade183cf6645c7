// Models that the built-in programs share. A Model owns a torch::nn::Module and hides its type, so
// that programs need no torch.h. One per replica, used by that replica's thread.
//
// Initial weights come from LibTorch's default generator as Keras draws them: kernels
// Glorot-uniform, biases zero.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace torch::nn {
class Module;
}

namespace muster::nn {

class Model {
 public:
  virtual ~Model() = default;
  virtual at::Tensor forward(const at::Tensor& input) = 0;
  // What optimizers, checkpoints and Builder::model see.
  virtual std::shared_ptr<torch::nn::Module> module() const = 0;
};

// The tutorial convnet: Conv 3x3 (no padding), ReLU, max-pool 2, Dense `hidden`, ReLU, Dense
// `classes`. Input [batch, 1, 28, 28], float; output [batch, classes] logits. An empty batch is
// fine, forward and backward. Parameters as torch.nn names and shapes them: conv.{weight,bias},
// dense.{weight,bias} (over the flattened [filters, 13, 13]), output.{weight,bias}.
struct ConvnetOptions {
  int64_t filters = 32;
  int64_t hidden = 64;
  int64_t classes = 10;
};
std::unique_ptr<Model> MakeConvnet(const ConvnetOptions& options);

// Dense layers of `widths`, of which the first is the input's, with ReLUs between them. Parameters
// layer<i>_weight and layer<i>_bias.
std::unique_ptr<Model> MakeMlp(const std::vector<int64_t>& widths);

// One Dense(1) unit without activation: input [batch, features], output [batch]. Parameters weight
// [1, features] and bias [1].
struct LinearUnitOptions {
  int64_t features = 1;
  std::vector<double> kernel;  // empty: Glorot-uniform; one value: for all features
  double bias = 0;
};
class LinearUnit : public Model {
 public:
  virtual at::Tensor kernel() const = 0;  // for penalties
};
std::unique_ptr<LinearUnit> MakeLinearUnit(const LinearUnitOptions& options);

}  // namespace muster::nn
