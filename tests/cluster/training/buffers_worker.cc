// muster-worker with a program that keeps state in buffers of each replica's own, for the tests of
// what is saved, restored and loaded. $MUSTER_TEST_DIR:
//   queue-<pid>-<replica>  a line for each step that is begun: its number, then the replica's queue
//   step-<pid>             of a program without a queue: a line for each step that is begun: its
//                          number, then the table, if there is one
//   hold-<step>            as long as it is there, this step waits at its beginning
// program_args: "frozen_until", a step before which the model's bias is frozen; "server", without
// the buffers of each replica's own; "table", with a table of integers and a switch, which the
// forward pass uses; "sleep_ms", of each step.
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/cluster/base/role.h"

namespace muster {
namespace {

std::string TestDirectory() {
  const char* path = std::getenv("MUSTER_TEST_DIR");
  return path == nullptr ? "." : path;
}

void Hold(int64_t step) {
  const std::string hold = fmt::format("{}/hold-{}", TestDirectory(), step);
  const MonotonicTime end = Clock::now() + std::chrono::seconds(60);
  while (std::filesystem::exists(hold) && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

class Net : public torch::nn::Module {
 public:
  Net(bool queue, bool with_table) {
    weight = register_parameter("weight", at::zeros({3}));
    bias = register_parameter("bias", at::zeros({1}));
    if (with_table) {
      table = register_buffer("table", at::zeros({3}, at::kLong));
      on = register_buffer("on", at::zeros({}, at::kBool));
    }
    if (!queue) return;
    this->queue = register_buffer("queue", at::zeros({4}));
    seen = register_buffer("seen", at::zeros({}, at::kLong));
  }
  at::Tensor weight, bias, table, on, queue, seen;
};

class Buffers : public Program {
 public:
  void build(Builder& builder) override {
    bool server = false, table = false;
    builder.args().Read("frozen_until", &frozen_until_).Read("server", &server);
    builder.args().Read("table", &table).Read("sleep_ms", &sleep_ms_);
    net_ = std::make_shared<Net>(!server, table);
    if (frozen_until_ > 0) net_->bias.set_requires_grad(false);
    builder.model("net", net_);
    if (!server) {
      builder.buffer("net.queue", BufferMode::kPerReplica);
      builder.buffer("net.seen", BufferMode::kPerReplica);
    }
    adam_ = builder.optimizer("adam", {"net"}, "adam", 0.02);
    builder.dataset(Split::kTrain, [] {
      const at::Tensor x = at::arange(90, at::kFloat).reshape({30, 3}).sin();
      return data::FromTensors({x, x.sum(1).cos()});
    });
  }
  void eval_step(Evaluation&, const data::Batch&) override {}
  void train_step(Step& step, const data::Batch& batch) override {
    Hold(step.number());
    std::this_thread::sleep_for(std::chrono::milliseconds(sleep_ms_));
    if (step.number() == frozen_until_) net_->bias.set_requires_grad(true);
    at::Tensor x = batch[0];
    if (net_->table.defined()) x = x * net_->table * net_->on;
    at::Tensor loss = (at::matmul(x, net_->weight) + net_->bias - batch[1]).square();
    WriteDown(step);
    if (!net_->queue.defined()) return step.minimize(adam_, loss);
    step.minimize(adam_, loss * (1 + 0.1 * net_->queue.mean()));
    const at::NoGradGuard no_grad;
    net_->seen.add_(batch[0].size(0));
    net_->queue.copy_(net_->queue.roll(1));
    if (batch[0].size(0) > 0) net_->queue[0] = batch[0][0][0];
  }

 private:
  void WriteDown(const Step& step) const {
    if (!net_->queue.defined()) {
      std::string line = fmt::format("{}", step.number());
      for (int64_t i = 0; net_->table.defined() && i < 3; ++i)
        line += fmt::format(" {}", net_->table[i].item<int64_t>());
      std::ofstream(fmt::format("{}/step-{}", TestDirectory(), getpid()), std::ios::app)
          << line << "\n";
      return;
    }
    std::string line = fmt::format("{} {}", step.number(), net_->seen.item<int64_t>());
    for (int64_t i = 0; i < net_->queue.numel(); ++i)
      line += fmt::format(" {:.9g}", net_->queue[i].item<float>());
    std::ofstream(fmt::format("{}/queue-{}-{}", TestDirectory(), getpid(), step.replica()),
                  std::ios::app)
        << line << "\n";
  }

  int64_t frozen_until_ = 0, sleep_ms_ = 0;
  std::shared_ptr<Net> net_;
  OptimizerHandle adam_;
};

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::testing::RunRole<muster::Buffers>(argc, argv); }
