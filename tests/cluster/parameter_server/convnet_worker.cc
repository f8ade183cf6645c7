// muster-chief or muster-worker (by the name it is called by) with a small convnet whose every
// state can be compared: with parameters that only some steps use, others that are frozen, dropout,
// and batch normalisation. In $MUSTER_TEST_DIR, where it is set, states-<pid> has a record for each
// step that is begun: its number, then all elements of parameters and floating-point buffers,
// float64 each. program_args: "examples" (96).
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <vector>

#include "tests/cluster/base/role.h"

namespace muster {
namespace {

constexpr int64_t kChannels = 4, kPixels = 8, kFrozenFrom = 6;

class Net : public torch::nn::Module {
 public:
  Net() {
    // A function of the index: the same in every process, independent of random numbers drawn
    // before.
    const auto values = [](at::IntArrayRef sizes, double frequency) {
      const int64_t n = c10::multiply_integers(sizes);
      return (at::arange(n, at::kFloat) * frequency).sin().mul_(0.3).reshape(sizes);
    };
    // No bias: normalisation takes it out, and Adam would make steps of the rounding that is left.
    kernel = register_parameter("kernel", values({kChannels, 1, 3, 3}, 1.7));
    fixed = register_parameter("fixed", values({kChannels, 1, 3, 3}, 2.3));
    fixed.set_requires_grad(false);
    scale = register_parameter("scale", at::ones({kChannels}));
    shift = register_parameter("shift", values({kChannels}, 0.9));
    odd = register_parameter("odd", values({kChannels}, 1.1));
    even = register_parameter("even", values({kChannels}, 1.3));
    late = register_parameter("late", values({kChannels}, 0.7));
    never = register_parameter("never", values({33}, 0.5));
    running_mean = register_buffer("running_mean", at::zeros({kChannels}));
    running_var = register_buffer("running_var", at::ones({kChannels}));
  }
  at::Tensor Forward(const at::Tensor& images, int64_t step) {
    at::Tensor x = at::conv2d(images, kernel + fixed);
    x = at::batch_norm(x, scale, shift, running_mean, running_var, /*training=*/true, 0.1, 1e-5,
                       /*cudnn_enabled=*/false);
    const at::Tensor features = at::dropout(x.relu().mean({2, 3}), 0.2, /*train=*/true);
    return at::matmul(features, late + (step % 2 == 1 ? odd : even));
  }
  at::Tensor kernel, fixed, scale, shift, odd, even, late, never, running_mean, running_var;
};

class Convnet : public Program {
 public:
  void build(Builder& builder) override {
    int64_t examples = 96;
    builder.args().Read("examples", &examples);
    net_ = std::make_shared<Net>();
    builder.model("net", net_);
    adam_ = builder.optimizer("adam", {"net"}, "adam", 0.02);
    builder.dataset(Split::kTrain, [examples] {
      const int64_t n = examples * kPixels * kPixels;
      // Hashes of the place, as noise: a batch of any size has the statistics of all.
      const at::Tensor noise = (at::arange(n, at::kDouble) * 12.9898).sin().mul(43758.5453).frac();
      const at::Tensor images =
          noise.add(0.75).to(at::kFloat).reshape({examples, 1, kPixels, kPixels});
      return data::FromTensors({images, images.flatten(1).narrow(1, 0, 9).sum(1)});
    });
  }
  void train_step(Step& step, const data::Batch& batch) override {
    if (step.number() == kFrozenFrom) net_->late.set_requires_grad(false);
    WriteDown(step.number());
    step.minimize(adam_, (net_->Forward(batch[0], step.number()) - batch[1]).square());
  }
  void eval_step(Evaluation&, const data::Batch&) override {}

 private:
  void WriteDown(int64_t step) const {
    const char* folder = std::getenv("MUSTER_TEST_DIR");
    if (folder == nullptr) return;
    std::vector<at::Tensor> all = {at::full({1}, step, at::kDouble)};
    for (const auto& tensors : {net_->parameters(), net_->buffers()})
      for (const at::Tensor& tensor : tensors)
        all.push_back(tensor.detach().to(at::kDouble).flatten());
    const at::Tensor record = at::cat(all);
    std::ofstream(fmt::format("{}/states-{}", folder, getpid()), std::ios::app | std::ios::binary)
        .write(static_cast<const char*>(record.const_data_ptr()),
               static_cast<std::streamsize>(record.nbytes()));
  }

  std::shared_ptr<Net> net_;
  OptimizerHandle adam_;
};

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::testing::RunRole<muster::Convnet>(argc, argv); }
