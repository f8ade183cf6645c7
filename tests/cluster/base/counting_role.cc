// The chief, a worker or the evaluator (by the name it is called by) of a job whose sum of updates
// is known: every batch takes exactly 1 from every element of every parameter, so the parameters
// tell how many pushes they hold, and an element that differs from the others was torn. It also
// takes 1 from the row of each of its examples in the table "seen", which so tells how often each
// example was used. Each batch that is pushed is written to $MUSTER_TEST_DIR/used-<pid>, a line of
// example numbers; to reads-<pid>, how many batches this process had begun and how many updates its
// parameters held then. As long as $MUSTER_TEST_DIR/hold is there, each process makes only as many
// batches as it says. A process that removes $MUSTER_TEST_DIR/die kills itself, with its push in
// all servers, before it can report the push. A process that removes $MUSTER_TEST_DIR/slow before
// its first batch sleeps three times as long. As long as $MUSTER_TEST_DIR/hold_prediction is there,
// a callback waits before it predicts. It shows, reports and measures one thing of each kind, as
// TensorBoard gets it.
//
// program_args: "examples" (64), "rows" (1000) of the large parameter with 300 columns, "sleep_ms"
// for each batch, "input_ms" for each training example that is loaded; "predicts": "epoch_end" or
// "step_end", where a callback predicts, and shows what it has got.
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <thread>

#include "evaluator/task.h"
#include "tests/cluster/base/role.h"

namespace muster {
namespace {

// Before the n-th batch of this process.
void Hold(int64_t n) {
  const char* folder = std::getenv("MUSTER_TEST_DIR");
  if (folder == nullptr) return;
  const MonotonicTime end = Clock::now() + std::chrono::seconds(60);
  while (Clock::now() < end) {
    int64_t batches = 0;
    if (!(std::ifstream(fmt::format("{}/hold", folder)) >> batches) || n <= batches) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void Note(const std::string& name, const std::string& line) {
  const char* folder = std::getenv("MUSTER_TEST_DIR");
  if (folder == nullptr) return;
  std::ofstream(fmt::format("{}/{}-{}", folder, name, getpid()), std::ios::app) << line;
}

absl::StatusOr<data::DatasetPtr> Numbers(int64_t examples, int64_t ms) {
  auto numbers = data::FromTensors({at::arange(examples, at::kFloat)});
  if (!numbers.ok() || ms == 0) return numbers;
  return data::Map(*std::move(numbers), [ms](data::Example example, const data::Context&, int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    return example;
  });
}

// While $MUSTER_TEST_DIR/hold_prediction is there; $MUSTER_TEST_DIR/predicts says that it waits.
void HoldPrediction() {
  const char* folder = std::getenv("MUSTER_TEST_DIR");
  if (folder == nullptr) return;
  const std::string hold = fmt::format("{}/hold_prediction", folder);
  const MonotonicTime end = Clock::now() + std::chrono::seconds(60);
  while (access(hold.c_str(), F_OK) == 0 && Clock::now() < end) {
    std::ofstream(fmt::format("{}/predicts", folder));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

class Counters : public torch::nn::Module {
 public:
  explicit Counters(int64_t rows) {
    large = register_parameter("large", at::zeros({rows, 300}));
    small = register_parameter("small", at::zeros({7}));
    scalar = register_parameter("scalar", at::zeros({}));
  }
  at::Tensor Sum() const { return large.sum() + small.sum() + scalar; }
  at::Tensor large, small, scalar;
};

// From the weights: how many updates they hold, and how often each example was used. Both are there
// as an image, as a text and in result.json.
class Predicts : public Callback {
 public:
  Predicts(std::string hook, int64_t examples) : hook_(std::move(hook)), examples_(examples) {}
  void epoch_end(CallbackContext& context) override {
    if (hook_ == "epoch_end") Predict(context);
  }
  void step_end(CallbackContext& context) override {
    if (hook_ == "step_end") Predict(context);
  }
  bool decides_in_steps() const override { return false; }

 private:
  void Predict(CallbackContext& context) const {
    HoldPrediction();
    const at::Tensor out = context.predict({at::arange(examples_, at::kFloat)});
    const auto updates = static_cast<int64_t>(out[0][0].item<float>());
    context.image("seen", (out.select(1, 1) / 255).reshape({1, 1, examples_, 1}));
    context.text("prediction", fmt::format("{} updates", updates));
    context.record(fmt::format("updates_{}", context.step()), updates);
    std::vector<int64_t> seen;
    for (int64_t i = 0; i < examples_; ++i)
      seen.push_back(static_cast<int64_t>(out[i][1].item<float>()));
    context.record("seen", seen);
  }

  const std::string hook_;
  const int64_t examples_;
};

class Counting : public Program {
 public:
  void build(Builder& builder) override {
    int64_t examples = 64, rows = 1000, input_ms = 0;
    std::string predicts;
    builder.args().Read("examples", &examples).Read("rows", &rows).Read("sleep_ms", &sleep_ms_);
    builder.args().Read("predicts", &predicts).Read("input_ms", &input_ms);
    if (!predicts.empty())
      builder.callback("predicts", std::make_shared<Predicts>(predicts, examples));
    counters_ = std::make_shared<Counters>(rows);
    builder.model("counters", counters_);
    sgd_ = builder.optimizer("sgd", {"counters"}, {{"name", "sgd"}}, 1.0);
    number_ = builder.metric("number", MakeMeanAbsoluteError());
    EmbeddingOptions seen;
    seen.width = 3;
    seen.initializer = "zeros";
    seen.optimizer = "sgd";
    seen.learning_rate = 1.0;
    seen_ = builder.embedding("seen", seen);
    for (const Split split : {Split::kTrain, Split::kValidation}) {
      const int64_t ms = split == Split::kTrain ? input_ms : 0;
      builder.dataset(split, [=] { return Numbers(examples, ms); });
    }
  }

  void train_step(Step& step, const data::Batch& batch) override {
    Hold(++made_);
    const char* folder = std::getenv("MUSTER_TEST_DIR");
    if (made_ == 1 && folder != nullptr && unlink(fmt::format("{}/slow", folder).c_str()) == 0)
      sleep_ms_ *= 3;
    if (sleep_ms_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(sleep_ms_));
    Note("reads", fmt::format("{} {}\n", made_, -counters_->scalar.item<float>()));
    step.report("updates", -counters_->scalar.detach().expand({batch[0].size(0)}));
    Show(step, batch);
    // Each example's share of the gradient is 1/n, exact for a power of two.
    const auto n = static_cast<double>(batch[0].size(0) * std::max(1, step.num_replicas()));
    const at::Tensor rows = step.lookup(seen_, batch[0].to(at::kLong));
    step.minimize(sgd_, counters_->Sum() + rows.sum(-1) * n);
    step.on_commit([line = Line(batch[0])] {
      const char* folder = std::getenv("MUSTER_TEST_DIR");
      if (folder == nullptr) return;
      Note("used", line);
      if (unlink(fmt::format("{}/die", folder).c_str()) == 0) raise(SIGKILL);
    });
  }
  // Returns for each example the updates, and how often it was used.
  at::Tensor predict(Prediction& prediction, const data::Batch& batch) override {
    const at::Tensor used = prediction.lookup(seen_, batch[0].to(at::kLong)).select(-1, 0);
    return -at::stack({counters_->scalar.expand({batch[0].size(0)}), used}, 1);
  }
  // The largest deviation of an element from the first one. It is 0 in a snapshot in which all
  // pushes are whole.
  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    const at::Tensor apart = (counters_->large - counters_->scalar).abs().max();
    evaluation.loss(apart.expand({batch[0].size(0)}));
    Show(evaluation, batch);
  }

 private:
  // The numbers of the examples, and the parameters.
  template <typename Of>
  void Show(Of& of, const data::Batch& batch) const {
    of.update(number_, batch[0], at::zeros_like(batch[0]));
    of.image("examples", (batch[0] / 255).reshape({-1, 1, 1, 1}));
    of.histogram("large", counters_->large);
  }
  static std::string Line(const at::Tensor& ids) {
    std::string line;
    for (int64_t i = 0; i < ids.numel(); ++i)
      line += fmt::format("{}{}", i == 0 ? "" : " ", static_cast<int64_t>(ids[i].item<float>()));
    return line + "\n";
  }

  int64_t sleep_ms_ = 0, made_ = 0;
  std::shared_ptr<Counters> counters_;
  OptimizerHandle sgd_;
  MetricHandle number_;
  EmbeddingHandle seen_;
};

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  if (std::string_view(argv[0]).ends_with("muster-evaluator")) {
    const auto counting = [](const muster::Json&) -> absl::StatusOr<muster::ProgramFactory> {
      return muster::ProgramFactory([] { return std::make_unique<muster::Counting>(); });
    };
    return muster::evaluator::RunEvaluator(argc, argv, {counting, ""});
  }
  return muster::testing::RunRole<muster::Counting>(argc, argv);
}
