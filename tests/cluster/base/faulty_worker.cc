// muster-worker with a program that fails where its arguments say: for the tests of what a
// program's own failure does to a job.
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <signal.h>
#include <torch/nn/module.h>

#include <new>
#include <thread>

#include "common/base/logging.h"
#include "common/base/process/restarts.h"
#include "tests/cluster/base/role.h"

namespace muster {
namespace {

[[noreturn]] void ThrowCuda(int error, const std::string& what) {
  throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, error, "CUDA error: " + what);
}

class Weights : public torch::nn::Module {
 public:
  Weights() { w = register_parameter("w", at::zeros({2})); }
  at::Tensor w;
};

// program_args: "replica" and "step" that fail, "how": "throw", "bytes" (likewise, with a message
// that is not UTF-8), "hang", "reduced" (a loss that is
// not [batch]), "diverge" (one minimize more than the others), "thread" (an exception on a thread
// of its own), "segv", "ecc" (what LibTorch throws when a GPU fails; in a first life alone),
// "illegal" (when a kernel fails, in every life), "memory" (the host has none left; in a first
// life).
class Faulty : public Program {
 public:
  void build(Builder& builder) override {
    builder.args().Read("replica", &replica_).Read("step", &step_).Read("how", &how_);
    builder.model("net", weights_);
    sgd_ = builder.optimizer("sgd", {"net"}, "sgd", 0.1);
    builder.dataset(Split::kTrain, [] {
      return data::FromTensors({at::ones({64, 2}), at::ones({64})});
    });
  }
  void train_step(Step& step, const data::Batch& batch) override {
    at::Tensor loss = (at::matmul(batch[0], weights_->w).sub(batch[1])).square();
    const bool now = step.replica() == replica_ && step.number() == step_;
    if (now && how_ == "reduced") loss = loss.mean();
    step.minimize(sgd_, loss);
    if (now && how_ == "hang") {
      LogInfo("hanging");
      std::this_thread::sleep_for(std::chrono::minutes(10));
    }
    if (now && how_ == "diverge") step.minimize(sgd_, (at::matmul(batch[0], weights_->w)).square());
    if (now && how_ == "thread") {
      std::thread([] { throw std::runtime_error("no luck on this thread"); }).join();
    }
    if (now && how_ == "segv") raise(SIGSEGV);
    if (now && Restarts() == 0 && how_ == "ecc") ThrowCuda(214, "uncorrectable ECC error");
    if (now && how_ == "illegal") ThrowCuda(700, "an illegal memory access was encountered");
    if (now && Restarts() == 0 && how_ == "memory") throw std::bad_alloc();
    if (now && how_ == "throw") throw std::runtime_error("no more luck");
    if (now && how_ == "bytes") throw std::runtime_error("no luck with \xff\xfe in caf\xe9");
  }
  void eval_step(Evaluation&, const data::Batch&) override {}

 private:
  int replica_ = 0;
  int64_t step_ = 0;
  std::string how_;
  std::shared_ptr<Weights> weights_ = std::make_shared<Weights>();
  OptimizerHandle sgd_;
};

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::testing::RunRole<muster::Faulty>(argc, argv); }
