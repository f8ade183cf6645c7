#include "tests/unit/train/test_program.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace muster::testing {

std::vector<double> Recorder::losses() const {
  std::vector<double> all;
  for (const StepReport& step : steps) all.push_back(step.loss);
  return all;
}

const EpochReport* Recorder::Find(const std::string& split, int64_t epoch) const {
  for (const EpochReport& report : epochs) {
    if (report.split == split && report.epoch == epoch) return &report;
  }
  return nullptr;
}

RunResult RunLocally(Job job, int replicas, std::function<void(TestProgram&)> set_up) {
  RunResult result;
  std::vector<TestProgram*> programs;
  TrainerOptions options;
  options.job = std::move(job);
  options.devices.assign(replicas, c10::Device(at::kCPU));
  options.observers = {&result.recorder};
  options.factory = [&] {
    auto program = std::make_unique<TestProgram>();
    set_up(*program);
    programs.push_back(program.get());
    return program;
  };
  auto trainer = Trainer::Make(std::move(options));
  if (!trainer.ok()) {
    result.status = trainer.status();
    return result;
  }
  auto membership = MakeLocalMembership(replicas, std::chrono::seconds(20));
  result.status = (*trainer)->Run(membership.get());
  for (TestProgram* program : programs) {
    std::map<std::string, at::Tensor> values;
    for (const auto& item : program->model->named_parameters())
      values[item.key()] = item.value().detach().clone();
    for (const auto& item : program->model->named_buffers())
      values[item.key()] = item.value().detach().clone();
    result.replicas.push_back(std::move(values));
  }
  return result;
}

std::function<absl::StatusOr<data::DatasetPtr>()> Tensors2(at::Tensor x, at::Tensor y) {
  return [x, y] { return data::FromTensors({x, y}); };
}

void LeastSquares(TestProgram& program, at::Tensor x, at::Tensor y) {
  program.on_build = [x, y](TestProgram& self, Builder& builder) {
    self.model->parameter("w", at::zeros({x.size(1)}));
    self.model->parameter("b", at::zeros({}));
    builder.model("net", self.model);
    self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, "sgd", 0.1);
    builder.dataset(Split::kTrain, Tensors2(x, y));
  };
  program.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
    step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
  };
}

at::Tensor SquaredError(TestProgram& program, const data::Batch& batch) {
  const at::Tensor prediction = at::matmul(batch[0], (*program.model)["w"]) + (*program.model)["b"];
  return (prediction - batch[1]).square();
}

}  // namespace muster::testing
