// Models that several built-in programs use. A Model owns a torch::nn::Module and hides its type,
// so programs do not need to include torch.h. Each replica (device) has its own Model. Only the
// thread of this replica may use the Model.
//
// Initial weights are as in Keras: kernels have a Glorot-uniform distribution, drawn from
// LibTorch's default generator, and biases are 0.
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
  // Returns the module, for Builder::model.
  virtual std::shared_ptr<torch::nn::Module> module() const = 0;
};

// The convnet of TensorFlow's tutorial "Distributed training with Keras": Conv 3x3 with `filters`
// filters and no padding, ReLU, max-pool 2, Dense `hidden`, ReLU, Dense `classes`. The input is
// float [batch, 1, 28, 28]. The output is logits [batch, classes]. The batch may be empty.
// Parameters have the names and shapes of torch.nn: conv.{weight,bias}, dense.{weight,bias} and
// output.{weight,bias}. The input of `dense` is the flattened [filters, 13, 13].
struct ConvnetOptions {
  int64_t filters = 32;
  int64_t hidden = 64;
  int64_t classes = 10;
};
std::unique_ptr<Model> MakeConvnet(const ConvnetOptions& options);

// Returns a model of dense layers with ReLU between them. widths[0] is the width of the input, and
// the other elements are the widths of the layers. Parameters have the names layer<i>_weight and
// layer<i>_bias.
std::unique_ptr<Model> MakeMlp(const std::vector<int64_t>& widths);

// Options of a single linear unit: Dense(1) without activation. The input is [batch, features], and
// the output is [batch]. The parameters are weight [1, features] and bias [1].
struct LinearUnitOptions {
  int64_t features = 1;
  // The initial kernel: one value per feature, or one value for all features. Empty:
  // Glorot-uniform.
  std::vector<double> kernel;
  double bias = 0;
};
class LinearUnit : public Model {
 public:
  virtual at::Tensor kernel() const = 0;  // Returns the weights, for a penalty in the loss.
};
std::unique_ptr<LinearUnit> MakeLinearUnit(const LinearUnitOptions& options);

}  // namespace muster::nn
