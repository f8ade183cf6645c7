// A program made of closures, and functions that run it on several replicas of this process, for
// the tests of the training loop.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/train/membership.h"
#include "common/train/observer.h"
#include "common/train/trainer.h"
#include "muster/program.h"

namespace muster::testing {

// Examples and the targets of a fit.
struct Data {
  at::Tensor x, y;
};

// A model with the parameters and buffers that a test registers.
class Tensors : public torch::nn::Module {
 public:
  at::Tensor& parameter(const std::string& name, at::Tensor value) {
    return register_parameter(name, std::move(value));
  }
  at::Tensor& buffer(const std::string& name, at::Tensor value) {
    return register_buffer(name, std::move(value));
  }
  at::Tensor operator[](const std::string& name) {
    auto parameters = named_parameters();
    if (auto* p = parameters.find(name)) return *p;
    return named_buffers()[name];
  }
};

// A program whose functions call closures. A test's factory makes one for each replica and sets the
// closures.
class TestProgram : public Program {
 public:
  std::function<void(TestProgram&, Builder&)> on_build;
  std::function<void(TestProgram&, Step&, const data::Batch&)> on_step;
  std::function<void(TestProgram&, Evaluation&, const data::Batch&)> on_eval;
  std::function<void(TestProgram&, Loop&)> on_run;
  std::function<void(const TestProgram&, Prefetch&, const data::Batch&)> on_prefetch;
  std::function<at::Tensor(TestProgram&, Prediction&, const data::Batch&)> on_predict;

  void build(Builder& builder) override { on_build(*this, builder); }
  void train_step(Step& step, const data::Batch& batch) override { on_step(*this, step, batch); }
  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    if (on_eval) on_eval(*this, evaluation, batch);
  }
  at::Tensor predict(Prediction& prediction, const data::Batch& batch) override {
    return on_predict ? on_predict(*this, prediction, batch) : Program::predict(prediction, batch);
  }
  void prefetch(Prefetch& rows, const data::Batch& batch) const override {
    if (on_prefetch) on_prefetch(*this, rows, batch);
  }
  void run(Loop& loop) override { on_run ? on_run(*this, loop) : loop.fit(); }

  std::shared_ptr<Tensors> model = std::make_shared<Tensors>(), second;
  std::map<std::string, OptimizerHandle> optimizers;
  std::map<std::string, MetricHandle> metrics;
  std::map<std::string, EmbeddingHandle> embeddings;
};

// Records all reports of the loop.
class Recorder : public Observer {
 public:
  // Called before the report is recorded. A test may request a stop in it.
  std::function<void(const StepReport&)> on_step;
  std::function<void(const std::string& split, int64_t done)> on_evaluate;

  void OnStart(const StartReport& report) override { start = report; }
  void OnStep(const StepReport& report) override {
    if (on_step) on_step(report);
    steps.push_back(report);
  }
  void OnEpoch(const EpochReport& report) override { epochs.push_back(report); }
  void OnFinish(int64_t step) override { finished = step; }
  void OnSave(int64_t step) override { saves.push_back(step); }
  void OnImages(const std::string& split, const ImageReport& report) override {
    images.emplace_back(split, report);
  }
  void OnHistogram(const std::string& split, const HistogramReport& report) override {
    histograms.emplace_back(split, report);
  }
  void OnLeftOut(const std::string& split, int64_t examples,
                 const std::vector<std::string>& names) override {
    left_out[split] += examples;
    damaged.insert(damaged.end(), names.begin(), names.end());
  }
  void OnEvaluateProgress(const std::string& split, int64_t done, int64_t) override {
    if (on_evaluate) on_evaluate(split, done);
  }
  std::vector<double> losses() const;
  const EpochReport* Find(const std::string& split, int64_t epoch) const;

  StartReport start;
  int64_t finished = -1;
  std::vector<StepReport> steps;
  std::vector<EpochReport> epochs;
  std::vector<int64_t> saves;
  std::vector<std::pair<std::string, ImageReport>> images;
  std::vector<std::pair<std::string, HistogramReport>> histograms;
  std::map<std::string, int64_t> left_out;  // The number of damaged examples, by split.
  std::vector<std::string> damaged;
};

// Returns the parameters and buffers of a program by name. The names of those in `second` start
// with "second.".
std::map<std::string, at::Tensor> Values(const TestProgram& program);

struct RunResult {
  absl::Status status;
  Recorder recorder;
  // The Values of each replica after the run.
  std::vector<std::map<std::string, at::Tensor>> replicas;
};

struct RunOptions {
  Job job;
  std::vector<c10::Device> devices = {c10::Device(at::kCPU)};
  // Called with each generation, whose communicators it may replace.
  std::function<void(Generation&)> on_generation;
  CheckpointSink* checkpoints = nullptr;
  const checkpoint::Snapshot* restore = nullptr;
  bool load = false;                // Loads the weights that the job and the program name.
  bool separate_variables = false;  // See TrainerOptions, here and in the next two.
  int restarts = 0;
  int declared_members = 1;
  // When the run requests a stop: before the start, at the report of a step (0: never), or after
  // the first batch of the n-th pass over a split ("": never).
  bool stop_before_start = false;
  int64_t stop_at_step = 0;
  std::string stop_in_split;
  int64_t stop_at_pass = 1;
  // Makes the membership. Null: this process is the only member.
  std::function<std::unique_ptr<Membership>()> membership;
};
// Runs the program on the devices. `set_up` sets the closures of each replica's program.
RunResult Run(RunOptions options, std::function<void(TestProgram&)> set_up);
// Runs the program on `replicas` CPU replicas.
RunResult RunLocally(Job job, int replicas, std::function<void(TestProgram&)> set_up);

// Returns a factory for the dataset of the examples (x[i], y[i]).
std::function<absl::StatusOr<data::DatasetPtr>()> Tensors2(at::Tensor x, at::Tensor y);

// Sets the closures of a linear regression with squared error, the program of most tests. x is
// [n, f], and y is [n]. The model "net" has parameters "w" [f] and "b". The optimizer "sgd" has the
// rate 0.1.
void LeastSquares(TestProgram& program, at::Tensor x, at::Tensor y);
at::Tensor SquaredError(TestProgram& program, const data::Batch& batch);

}  // namespace muster::testing
