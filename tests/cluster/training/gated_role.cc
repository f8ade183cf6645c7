// All roles of a small job in one binary, whose training and evaluation wait at gates: files that a
// test makes to release them. Environment variables of the evaluator's process alone control its
// eval_step, because all tasks have the same job.
#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "chief/chief.h"
#include "common/base/logging.h"
#include "evaluator/task.h"
#include "muster/json.h"
#include "worker/task.h"

namespace muster {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Makes "<gate>.reached", waits for the file `gate`. "": there is none.
void Pass(const std::string& gate) {
  if (gate.empty() || std::filesystem::exists(gate)) return;
  std::ofstream(gate + ".reached") << "";
  while (!std::filesystem::exists(gate)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

class Weights : public torch::nn::Module {
 public:
  Weights() { w = register_parameter("w", at::zeros({3})); }
  at::Tensor w;
};

absl::StatusOr<data::DatasetPtr> Examples(int64_t from, int64_t count) {
  const at::Tensor x = at::arange(from * 3, (from + count) * 3, at::kFloat).sin().view({count, 3});
  const at::Tensor y = x.matmul(at::tensor({1.0F, -2.0F, 0.5F})).add(x.select(1, 0).cos());
  return data::FromTensors({x, y});
}

// program_args: "gates", an object from steps to gates before which train_step waits.
class Gated : public Program {
 public:
  void build(Builder& builder) override {
    builder.args().Read("gates", &gates_);
    builder.model("net", weights_);
    sgd_ = builder.optimizer("sgd", {"net"}, "sgd", 0.05);
    error_ = builder.metric("absolute_error", MakeMeanAbsoluteError());
    builder.dataset(Split::kTrain, [] { return Examples(0, 60); });
    builder.dataset(Split::kValidation, [] { return Examples(60, 37); });
    if (Variable("GATED_BUILD") == "throw") throw std::runtime_error("no such data here");
  }
  void train_step(Step& step, const data::Batch& batch) override {
    if (step.replica() == 0) Pass(gates_.value(std::to_string(step.number()), ""));
    step.minimize(sgd_, Output(batch).sub(batch[1]).square());
  }
  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    if (evaluator_) {
      Pass(Variable("GATED_EVALUATE"));
      if (Variable("GATED_EVALUATE_THEN") == "throw") throw std::runtime_error("no more luck");
    }
    evaluation.loss(Output(batch).sub(batch[1]).square());
    evaluation.update(error_, Output(batch), batch[1]);
  }

 private:
  at::Tensor Output(const data::Batch& batch) { return batch[0].matmul(weights_->w); }

  const bool evaluator_ =
      Json::parse(Variable("TF_CONFIG"), nullptr, false).value("/task/type"_json_pointer, "") ==
      "evaluator";
  Json gates_ = Json::object();
  std::shared_ptr<Weights> weights_ = std::make_shared<Weights>();
  OptimizerHandle sgd_;
  MetricHandle error_;
};

absl::StatusOr<ProgramFactory> Find(const Json&) {
  return ProgramFactory([] { return std::make_unique<Gated>(); });
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  using muster::TaskType;
  const muster::Json config = muster::Json::parse(muster::Variable("TF_CONFIG"));
  const std::string type = config.at("task").at("type");
  if (type == "evaluator") return muster::evaluator::RunEvaluator(argc, argv, {muster::Find, ""});
  return muster::worker::RunTask(argc, argv,
                                 {type == "chief" ? TaskType::kChief : TaskType::kWorker,
                                  muster::chief::StartChief, muster::Find, ""});
}
