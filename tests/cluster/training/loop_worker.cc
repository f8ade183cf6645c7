// muster-worker with programs that own their loop, for loop_test.py. `program` names one:
//   own_linear   `linear`, stepped by a loop of its own that prints each step's loss
//   values       reduces, gathers and prints values of its replicas
//   stream       trains on a stream that only its end tells the length of, several steps a batch,
//                with a second data set; program_args "finish_after": ends its training there;
//                $MUSTER_TEST_HOLD_AFTER: goes no further than that step, and waits to be killed
//   calls        makes the call of its Loop that program_args "call" names, at its third step;
//                "late": registers a buffer there; "norm": normalises each batch
//   tested       has a test pass every two epochs, whose steps report values
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "chief/chief.h"
#include "examples/programs.h"
#include "worker/task.h"

namespace muster {
namespace {

// One write, so that the lines of several replicas stay whole.
void Print(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

class OwnLinear final : public Program {
 public:
  explicit OwnLinear(std::unique_ptr<Program> linear) : linear_(std::move(linear)) {}
  void build(Builder& builder) override { linear_->build(builder); }
  void train_step(Step& step, const data::Batch& batch) override {
    linear_->train_step(step, batch);
  }
  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    linear_->eval_step(evaluation, batch);
  }
  void run(Loop& loop) override {
    data::Batch batch;
    while (loop.next(&batch)) {
      const StepOutcome outcome = loop.step(
          [this](Step& step, const data::Batch& part) { linear_->train_step(step, part); });
      if (loop.replica() == 0)
        Print(fmt::format("step {} loss {:.9g}", outcome.number, outcome.loss));
    }
  }

 private:
  const std::unique_ptr<Program> linear_;
};

class Weights : public torch::nn::Module {
 public:
  Weights() { w = register_parameter("w", at::zeros({2})); }
  at::Tensor w;
};

std::string Text(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).contiguous().reshape({-1});
  const double* data = flat.const_data_ptr<double>();
  return fmt::format("[{}]", fmt::join(data, data + flat.numel(), ", "));
}

class Values final : public Program {
 public:
  void build(Builder& builder) override {
    builder.model("net", weights_);
    builder.optimizer("sgd", {"net"}, {{"name", "sgd"}}, 0.1);
    builder.dataset(Split::kTrain, [] { return data::FromTensors({at::ones({4, 2})}); });
  }
  void train_step(Step&, const data::Batch&) override {}
  void eval_step(Evaluation&, const data::Batch&) override {}
  void run(Loop& loop) override {
    const int replica = loop.replica();
    // TensorFlow's example for two replicas, {'a': 1, 'b': [40, 1]} and {'a': 3, 'b': [2, 98]}, in
    // turns.
    const PerReplica value = loop.run([&]() -> Nested {
      const bool even = replica % 2 == 0;
      return {{"a", even ? 1 : 3},
              {"b", Nested{{"c", at::tensor(even ? std::vector<double>{40, 1}
                                                 : std::vector<double>{2, 98})}}}};
    });
    const PerReplica slice(at::arange(replica, replica + 1 + replica % 2, at::kFloat));
    const auto print = [&](const char* what, const Nested& nested) {
      Print(fmt::format("{} {}/{} a {} c {}", what, replica, loop.num_replicas(),
                        Text(nested["a"].tensor()), Text(nested["b"]["c"].tensor())));
    };
    print("sum", loop.reduce(ReduceOp::kSum, value));
    print("mean", loop.reduce(ReduceOp::kMean, value));
    print("min", loop.reduce(ReduceOp::kMin, value));
    print("max", loop.reduce(ReduceOp::kMax, value));
    print("gather", loop.gather(value));
    Print(fmt::format("uneven {} {} {} {}", replica, Text(loop.gather(slice).tensor()),
                      Text(loop.reduce(ReduceOp::kMean, slice, 0).tensor()),
                      Text(loop.reduce(ReduceOp::kMax, slice, 0).tensor())));
    for (const Nested& local : loop.local_results(value)) print("local", local);
  }

 private:
  const std::shared_ptr<Weights> weights_ = std::make_shared<Weights>();
};

// 23 examples a pass.
class Rows final : public data::Stream {
 public:
  explicit Rows(int64_t pass) : pass_(pass) {}
  absl::StatusOr<data::Example> Next() override {
    if (next_ == 23) return absl::OutOfRangeError("no more");
    const double id = static_cast<double>(100 * pass_ + next_++);
    return data::Example{at::tensor({std::sin(id), std::cos(id)}, at::kFloat),
                         at::full({}, std::sin(0.3 * id), at::kFloat)};
  }

 private:
  const int64_t pass_;
  int64_t next_ = 0;
};

class Streaming final : public Program {
 public:
  void build(Builder& builder) override {
    builder.args().Read("finish_after", &finish_after_).Read("sleep_ms", &sleep_ms_);
    builder.model("net", weights_);
    sgd_ = builder.optimizer("sgd", {"net"}, {{"name", "sgd"}, {"momentum", 0.5}}, 0.05);
    builder.dataset(Split::kTrain, [] {
      return data::FromStream([](const data::Context& context, int64_t) {
        return std::make_unique<Rows>(context.epoch);
      });
    });
    more_ =
        builder.dataset("more",
                        [] {
                          const at::Tensor id = at::arange(9, at::kFloat);
                          return data::FromTensors({at::stack({id.cos(), id.sin()}, 1), id.sin()});
                        },
                        {.batch_size = 4, .repeat = true});
  }
  void train_step(Step&, const data::Batch&) override {}
  void eval_step(Evaluation&, const data::Batch&) override {}
  void run(Loop& loop) override {
    data::Batch batch, extra;
    while (loop.next(&batch, 3)) {
      while (loop.steps_left() > 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(sleep_ms_));
        if (!loop.next(more_, &extra)) return;
        const at::Tensor total =
            loop.reduce_sum(at::full({}, static_cast<double>(extra[0].size(0))));
        const StepOutcome outcome = loop.step([&](Step& step, const data::Batch& part) {
          const at::Tensor of_extra = Loss(extra).sum() / total.item<double>();
          step.regularize(of_extra * step.num_replicas());
          step.minimize(sgd_, Loss(part));
        });
        if (loop.replica() == 0)
          Print(fmt::format("step {} loss {:.9g} examples {}", outcome.number, outcome.loss,
                            outcome.examples));
        if (outcome.number == finish_after_) loop.finish();
        if (outcome.number == hold_after_) std::this_thread::sleep_for(std::chrono::hours(1));
      }
    }
  }

 private:
  at::Tensor Loss(const data::Batch& batch) const {
    return (at::matmul(batch[0], weights_->w) - batch[1]).square();
  }
  static int64_t HoldAfter() {
    const char* step = std::getenv("MUSTER_TEST_HOLD_AFTER");
    return step == nullptr ? -1 : std::atoll(step);
  }

  const int64_t hold_after_ = HoldAfter();
  int64_t finish_after_ = 0, sleep_ms_ = 0;
  OptimizerHandle sgd_;
  DatasetHandle more_;
  const std::shared_ptr<Weights> weights_ = std::make_shared<Weights>();
};

// Makes the calls that a loop may make on parameter servers, and those that are refused there.
class Calls final : public Program {
 public:
  void build(Builder& builder) override {
    builder.args().Read("call", &call_);
    builder.model("net", weights_);
    sgd_ = builder.optimizer("sgd", {"net"}, {{"name", "sgd"}}, 0.1);
    for (const Split split : {Split::kTrain, Split::kValidation})
      builder.dataset(split, [] { return data::FromTensors({at::ones({12, 2}), at::ones({12})}); });
    if (call_ == "named")
      builder.dataset("more", [] { return data::FromTensors({at::ones({4, 2})}); }, {});
  }
  void train_step(Step&, const data::Batch&) override {}
  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    evaluation.loss(Loss(batch));
  }
  void run(Loop& loop) override {
    data::Batch batch;
    while (loop.next(&batch)) {
      const StepOutcome outcome = loop.step([this](Step& step, const data::Batch& part) -> Nested {
        step.minimize(sgd_, Loss(part));
        return {{"examples", part[0].size(0)}};
      });
      Fine(loop, outcome);
      if (outcome.number == 3) Call(loop);
      if (outcome.number == 3 && call_ == "return") return;
    }
  }

 private:
  at::Tensor Loss(const data::Batch& batch) const {
    at::Tensor x = batch[0];
    if (call_ == "norm") x = at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false);
    return (at::matmul(x, weights_->w) - batch[1]).square();
  }
  static void Fine(Loop& loop, const StepOutcome& outcome) {
    const PerReplica value = loop.run([&]() -> Nested { return {{"a", outcome.number}}; });
    const std::vector<Nested> local = loop.local_results(value);
    Print(fmt::format("step {} loss {:.9g} of replica {}/{} at {} with {} examples, {} local: {}",
                      outcome.number, outcome.loss, loop.replica(), loop.num_replicas(),
                      loop.device().str(), Text(outcome.results.local()["examples"].tensor()),
                      local.size(), Text(local.at(0)["a"].tensor())));
  }
  void Call(Loop& loop) {
    data::Batch batch;
    const PerReplica value(at::ones({2}));
    if (call_ == "next") (void)loop.next(&batch, 2);
    if (call_ == "next_of") (void)loop.next(DatasetHandle{0}, &batch);
    if (call_ == "step") (void)loop.step([](Step&, const data::Batch&) {});
    if (call_ == "evaluate") (void)loop.evaluate(Split::kValidation);
    if (call_ == "reduce") (void)loop.reduce(ReduceOp::kSum, value);
    if (call_ == "reduce_axis") (void)loop.reduce(ReduceOp::kMean, value, 0);
    if (call_ == "reduce_sum") (void)loop.reduce_sum(at::ones({}));
    if (call_ == "gather") (void)loop.gather(value);
    if (call_ == "finish") loop.finish();
    if (call_ == "late") weights_->register_buffer("late", at::zeros({1}));
  }
  std::string call_;
  OptimizerHandle sgd_;
  const std::shared_ptr<Weights> weights_ = std::make_shared<Weights>();
};

class Tested final : public Program {
 public:
  void build(Builder& builder) override {
    builder.model("net", weights_);
    sgd_ = builder.optimizer("sgd", {"net"}, {{"name", "sgd"}}, 0.1);
    builder.test_every(2);
    for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest})
      builder.dataset(split, [split] {
        const at::Tensor x = at::arange(14, at::kFloat).reshape({7, 2}) / 14;
        return data::FromTensors({x, x.sum(1) + static_cast<double>(split)});
      });
  }
  void train_step(Step& step, const data::Batch& batch) override {
    step.minimize(sgd_, Loss(batch));
  }
  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    const at::Tensor loss = Loss(batch);
    evaluation.loss(loss);
    evaluation.report("worst(loss)", loss.sqrt());
    evaluation.report("target", batch[1]);
  }

 private:
  at::Tensor Loss(const data::Batch& batch) const {
    return (at::matmul(batch[0], weights_->w) - batch[1]).square();
  }
  OptimizerHandle sgd_;
  const std::shared_ptr<Weights> weights_ = std::make_shared<Weights>();
};

absl::StatusOr<ProgramFactory> Find(const Json& program) {
  if (program == "values") return ProgramFactory([] { return std::make_unique<Values>(); });
  if (program == "calls") return ProgramFactory([] { return std::make_unique<Calls>(); });
  if (program == "tested") return ProgramFactory([] { return std::make_unique<Tested>(); });
  if (program == "stream") return ProgramFactory([] { return std::make_unique<Streaming>(); });
  MUSTER_ASSIGN_OR_RETURN(const ProgramFactory linear, FindProgram("linear"));
  return ProgramFactory([linear] { return std::make_unique<OwnLinear>(linear()); });
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  return muster::worker::RunTask(
      argc, argv, {muster::TaskType::kWorker, muster::chief::StartChief, muster::Find});
}
