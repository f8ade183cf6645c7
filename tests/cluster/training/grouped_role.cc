// The chief or a worker (by the name it is called by) of a small network with all that optimizers
// and servers treat apart: weights and biases for groups, a parameter that only every third step
// uses, with program_args.norm a batch normalisation, whose statistics and counter are buffers, and
// with program_args.tied the head's weight under a second name.
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <string_view>

#include "tests/cluster/base/role.h"

namespace muster {
namespace {

// Numbers that look like any, the same everywhere.
at::Tensor Numbers(at::IntArrayRef sizes, double scale, double shift) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::sin(at::arange(count, at::kFloat) * 1.7 + shift).reshape(sizes) * scale;
}

class Layer : public torch::nn::Module {
 public:
  Layer(int64_t in, int64_t out, double shift) {
    weight = register_parameter("weight", Numbers({out, in}, 0.5, shift));
    bias = register_parameter("bias", Numbers({out}, 0.1, shift));
  }
  at::Tensor weight, bias;
};

class Norm : public torch::nn::Module {
 public:
  explicit Norm(int64_t size) {
    weight = register_parameter("weight", at::ones({size}));
    bias = register_parameter("bias", at::zeros({size}));
    mean = register_buffer("running_mean", at::zeros({size}));
    var = register_buffer("running_var", at::ones({size}));
    count = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
  }
  at::Tensor weight, bias, mean, var, count;
};

class Network : public torch::nn::Module {
 public:
  Network(bool with_norm, bool tied) {
    base = register_module("base", std::make_shared<Layer>(6, 8, 0.1));
    if (with_norm) norm = register_module("norm", std::make_shared<Norm>(8));
    head = register_module("head", std::make_shared<Layer>(8, 1, 0.7));
    rare = register_parameter("rare", Numbers({6}, 0.3, 0.4));
    if (tied) gate = register_parameter("tied_gate", head->weight);
  }
  std::shared_ptr<Layer> base, head;
  std::shared_ptr<Norm> norm;
  at::Tensor rare, gate;
};

class Grouped : public Program {
 public:
  void build(Builder& builder) override {
    bool norm = false, tied = false;
    builder.args().Read("norm", &norm).Read("tied", &tied);
    network_ = std::make_shared<Network>(norm, tied);
    builder.model("network", network_);
    optimizer_ = builder.optimizer("optimizer", {"network"}, "sgd", 0.1);
    builder.dataset(Split::kTrain, [] {
      const at::Tensor x = Numbers({64, 6}, 1, 0.2);
      return data::FromTensors({x, x.sum(1) + Numbers({64}, 0.1, 0.9)});
    });
  }

  void train_step(Step& step, const data::Batch& batch) override {
    at::Tensor hidden = at::linear(batch[0], network_->base->weight, network_->base->bias);
    if (Norm* norm = network_->norm.get(); norm != nullptr) {
      norm->count.add_(1);
      hidden = at::batch_norm(hidden, norm->weight, norm->bias, norm->mean, norm->var,
                              /*training=*/true, 0.1, 1e-5, /*cudnn_enabled=*/false);
    }
    if (network_->gate.defined()) hidden = hidden * at::tanh(network_->gate);
    at::Tensor output =
        at::linear(at::tanh(hidden), network_->head->weight, network_->head->bias).squeeze(1);
    if (step.number() % 3 == 0) output = output + at::matmul(batch[0], network_->rare);
    step.minimize(optimizer_, (output - batch[1]).square());
  }
  void eval_step(Evaluation&, const data::Batch&) override {}

 private:
  std::shared_ptr<Network> network_;
  OptimizerHandle optimizer_;
};

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::testing::RunRole<muster::Grouped>(argc, argv); }
