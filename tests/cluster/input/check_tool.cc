// `muster check` with programs that have something to refuse, for check_test.py. The one program's
// program_args:
//   examples     of the training data, 20 by default
//   stream       the training data is a stream
//   named        declares a data set besides the splits
//   buffer       declares the mode of its buffer: mean, same or per_replica
//   batch_norm   normalises over [batch, features]
//   type_double  holds a parameter of float64
//   frozen       freezes a parameter in build()
//   load         builder.load of this file
//   optimizers   how many
//   writes_buffer   changes its buffer in a step
//   in_step      calls this in a step: all_reduce or all_gather
//   loop         a loop of its own: evaluates, reduces, several_steps, finishes, returns, no_step
//   throws       where it throws: build, run, step or pass
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include <CLI/CLI.hpp>
#include <stdexcept>

#include "chief/model_dir/resume.h"
#include "common/base/logging.h"
#include "common/process/task_process.h"
#include "deploy/tool/check/check.h"

namespace muster {
namespace {

class Net : public torch::nn::Module {
 public:
  Net(bool batch_norm, bool type_double) {
    weight = register_parameter("weight", at::zeros({3}));
    bias = register_parameter("bias", at::zeros({1}, type_double ? at::kDouble : at::kFloat));
    seen = register_buffer("seen", at::zeros({2}));
    if (batch_norm) norm = register_module("norm", torch::nn::BatchNorm1d(3));
  }
  at::Tensor forward(const at::Tensor& x) {
    return at::matmul(norm.is_empty() ? x : norm(x), weight) + bias;
  }
  at::Tensor weight, bias, seen;
  torch::nn::BatchNorm1d norm{nullptr};
};

class Rows final : public data::Stream {
 public:
  explicit Rows(int64_t examples) : left_(examples) {}
  absl::StatusOr<data::Example> Next() override {
    if (left_-- == 0) return absl::OutOfRangeError("no more");
    return data::Example{at::ones({3}), at::ones({})};
  }

 private:
  int64_t left_;
};

absl::StatusOr<data::DatasetPtr> Examples(int64_t count) {
  const at::Tensor x = at::arange(3 * count, at::kFloat).reshape({count, 3}).sin();
  return data::FromTensors({x, x.sum(1).cos()});
}

class Checked final : public Program {
 public:
  void build(Builder& builder) override {
    int64_t examples = 20, optimizers = 1;
    bool stream = false, named = false, batch_norm = false, type_double = false, frozen = false;
    std::string buffer, load;
    builder.args()
        .Read("examples", &examples)
        .Read("stream", &stream)
        .Read("named", &named)
        .Read("buffer", &buffer)
        .Read("batch_norm", &batch_norm)
        .Read("type_double", &type_double)
        .Read("frozen", &frozen)
        .Read("load", &load)
        .Read("optimizers", &optimizers)
        .Read("writes_buffer", &writes_buffer_)
        .Read("in_step", &in_step_)
        .Read("loop", &loop_)
        .Read("throws", &throws_);
    Throw("build");
    net_ = std::make_shared<Net>(batch_norm, type_double);
    if (frozen) net_->bias.set_requires_grad(false);
    builder.model("net", net_);
    if (!load.empty()) builder.load("net", load);
    if (!buffer.empty())
      builder.buffer("net.seen", buffer == "mean"   ? BufferMode::kMean
                                 : buffer == "same" ? BufferMode::kSame
                                                    : BufferMode::kPerReplica);
    sgd_ = builder.optimizer("sgd", {"net"}, "sgd", 0.1);
    for (int64_t o = 1; o < optimizers; ++o) {
      const std::string name = "net" + std::to_string(o);
      builder.model(name, std::make_shared<Net>(false, false));
      builder.optimizer("sgd" + std::to_string(o), {name}, "sgd", 0.1);
    }
    builder.dataset(Split::kTrain, [=]() -> absl::StatusOr<data::DatasetPtr> {
      if (!stream) return Examples(examples);
      return data::FromStream(
          [=](const data::Context&, int64_t) { return std::make_unique<Rows>(examples); });
    });
    builder.dataset(Split::kValidation, [] { return Examples(30); });
    builder.dataset(Split::kTest, [] { return Examples(30); });
    if (named) builder.dataset("more", [] { return Examples(9); }, {.distributed = false});
  }

  void train_step(Step& step, const data::Batch& batch) override {
    Throw("step");
    if (writes_buffer_) net_->seen.add_(1);
    if (in_step_ == "all_reduce") step.all_reduce(at::ones({1}), ReduceOp::kSum);
    if (in_step_ == "all_gather") step.all_gather(at::ones({1}));
    step.minimize(sgd_, (net_->forward(batch[0]) - batch[1]).square().to(at::kFloat));
  }

  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    Throw("pass");
    evaluation.loss((net_->forward(batch[0]) - batch[1]).square());
  }

  void run(Loop& loop) override {
    Throw("run");
    if (loop_.empty()) return loop.fit();
    if (loop_ == "no_step") return;
    if (loop_ == "evaluates") loop.evaluate(Split::kValidation);
    if (loop_ == "reduces") loop.reduce(ReduceOp::kSum, PerReplica(at::ones({1})));
    if (loop_ == "finishes") loop.finish();
    data::Batch batch;
    while (loop.next(&batch, loop_ == "several_steps" ? 2 : 1)) {
      do {
        loop.step([this](Step& step, const data::Batch& part) { train_step(step, part); });
      } while (loop.steps_left() > 0);
      if (loop_ == "returns") return;
    }
  }

 private:
  void Throw(const std::string& where) const {
    if (throws_ == where) throw std::runtime_error("no such planet");
  }
  bool writes_buffer_ = false;
  std::string in_step_, loop_, throws_;
  std::shared_ptr<Net> net_;
  OptimizerHandle sgd_;
};

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  muster::InitLogging("");
  CLI::App app;
  const auto command = muster::MakeCheckCommand(
      {[](const muster::Json&) {
         return muster::ProgramFactory([] { return std::make_unique<muster::Checked>(); });
       },
       muster::chief::FindStartState});
  command->Register(app);
  CLI11_PARSE(app, argc, argv);
  muster::LeaveProcess(muster::ExitCodeFromInt(command->Run()));
}
