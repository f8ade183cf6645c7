#include "tests/unit/train/test_program.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "common/train/replica/devices/devices.h"

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

namespace {
// A membership that passes each generation to a function of the test.
class Watched : public Membership {
 public:
  Watched(std::unique_ptr<Membership> inner, std::function<void(Generation&)> on_generation)
      : inner_(std::move(inner)), on_generation_(std::move(on_generation)) {}
  absl::StatusOr<Generation> NextGeneration(int64_t last_step) override {
    auto generation = inner_->NextGeneration(last_step);
    if (generation.ok() && on_generation_) on_generation_(*generation);
    return generation;
  }
  void SetPhase(Phase phase, int64_t step) override { inner_->SetPhase(phase, step); }
  absl::Status Explain(const absl::Status& local) override { return inner_->Explain(local); }
  void ReportFailure(const absl::Status& failure) override { inner_->ReportFailure(failure); }
  void RequestStop() override { inner_->RequestStop(); }
  bool StopRequested() const override { return inner_->StopRequested(); }
  absl::Status Finish(int64_t last_step, const absl::Status& outcome) override {
    return inner_->Finish(last_step, outcome);
  }

 private:
  const std::unique_ptr<Membership> inner_;
  const std::function<void(Generation&)> on_generation_;
};
}  // namespace

RunResult Run(RunOptions run, std::function<void(TestProgram&)> set_up) {
  RunResult result;
  std::vector<TestProgram*> programs;
  TrainerOptions options;
  options.job = std::move(run.job);
  options.devices = run.devices;
  options.observers = {&result.recorder};
  options.factory = [&] {
    auto program = std::make_unique<TestProgram>();
    set_up(*program);
    programs.push_back(program.get());
    return program;
  };
  options.checkpoints = run.checkpoints;
  options.separate_variables = run.separate_variables;
  options.restarts = run.restarts;
  options.declared_members = run.declared_members;
  auto trainer = Trainer::Make(std::move(options));
  if (!trainer.ok()) {
    result.status = trainer.status();
    return result;
  }
  Watched membership(run.membership
                         ? run.membership()
                         : MakeLocalMembership(static_cast<int>(run.devices.size()),
                                               std::chrono::seconds(20), CudaIndices(run.devices)),
                     run.on_generation);
  result.recorder.on_step = [&](const StepReport& report) {
    if (report.step == run.stop_at_step) membership.RequestStop();
  };
  int64_t passes = 0;
  result.recorder.on_evaluate = [&](const std::string& split, int64_t done) {
    if (split == run.stop_in_split && done == 1 && ++passes == run.stop_at_pass)
      membership.RequestStop();
  };
  if (run.stop_before_start) membership.RequestStop();
  if (run.restore != nullptr) result.status = (*trainer)->Restore(*run.restore);
  if (result.status.ok() && run.load)
    result.status = (*trainer)->Load(checkpoint::PosixFileSystem());
  if (result.status.ok()) result.status = (*trainer)->Run(&membership);
  result.recorder.on_step = nullptr;
  result.recorder.on_evaluate = nullptr;
  for (TestProgram* program : programs) result.replicas.push_back(Values(*program));
  return result;
}

std::map<std::string, at::Tensor> Values(const TestProgram& program) {
  std::map<std::string, at::Tensor> values;
  const auto add = [&](const Tensors& model, const std::string& prefix) {
    for (const auto& item : model.named_parameters())
      values[prefix + item.key()] = item.value().detach().cpu().clone();
    for (const auto& item : model.named_buffers())
      values[prefix + item.key()] = item.value().detach().cpu().clone();
  };
  add(*program.model, "");
  if (program.second != nullptr) add(*program.second, "second.");
  return values;
}

RunResult RunLocally(Job job, int replicas, std::function<void(TestProgram&)> set_up) {
  RunOptions options;
  options.job = std::move(job);
  options.devices.assign(replicas, c10::Device(at::kCPU));
  return Run(std::move(options), std::move(set_up));
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
