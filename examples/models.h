// Models that the built-in programs share. A Model owns a torch::nn::Module and hides its type, so
// that programs do not include torch.h. Each replica has its own Model. Only the replica's thread
// may use it.
//
// Initial weights are those of Keras: Glorot-uniform kernels, from LibTorch's default generator,
// and zero biases.
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

// The convnet of the tutorial: Conv 3x3 (no padding), ReLU, max-pool 2, Dense `hidden`, ReLU, Dense
// `classes`. The input is float [batch, 1, 28, 28]. The output is logits [batch, classes]. The
// batch may be empty. Parameters have the names and shapes of torch.nn: conv.{weight,bias},
// dense.{weight,bias} (over the flattened [filters, 13, 13]), output.{weight,bias}.
struct ConvnetOptions {
  int64_t filters = 32;
  int64_t hidden = 64;
  int64_t classes = 10;
};
std::unique_ptr<Model> MakeConvnet(const ConvnetOptions& options);

// Returns dense layers with ReLU between them. `widths` has the width of the input, then the width
// of each layer. Parameters have the names layer<i>_weight and layer<i>_bias.
std::unique_ptr<Model> MakeMlp(const std::vector<int64_t>& widths);

// Options of one Dense(1) unit without activation. The input is [batch, features], and the output
// is [batch]. The parameters are weight [1, features] and bias [1].
struct LinearUnitOptions {
  int64_t features = 1;
  // The initial kernel. Empty means Glorot-uniform. A single value applies to all features.
  std::vector<double> kernel;
  double bias = 0;
};
class LinearUnit : public Model {
 public:
  virtual at::Tensor kernel() const = 0;  // Used for penalties.
};
std::unique_ptr<LinearUnit> MakeLinearUnit(const LinearUnitOptions& options);

}  // namespace muster::nn
