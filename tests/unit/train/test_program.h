// A program made of closures, and a way to run it on N replica threads: what the tests of the
// training loop share.
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
#include "common/train/trainer.h"
#include "muster/program.h"

namespace muster::testing {

// A model of named parameters and buffers, made by hand.
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

// One object a replica, made by a factory that fills in the closures.
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

// Keeps all that the loop reports.
class Recorder : public Observer {
 public:
  // Called first; a test may ask for a stop from there.
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
  std::map<std::string, int64_t> left_out;  // by split
  std::vector<std::string> damaged;
};

// The parameters and buffers of a program by their names in `model`; those of `second` behind
// "second.".
std::map<std::string, at::Tensor> Values(const TestProgram& program);

struct RunResult {
  absl::Status status;
  Recorder recorder;
  // After the run, of each replica.
  std::vector<std::map<std::string, at::Tensor>> replicas;
};

// Runs the program on these devices of this process; `on_generation` sees the communicators.
struct RunOptions {
  Job job;
  std::vector<c10::Device> devices = {c10::Device(at::kCPU)};
  std::function<void(Generation&)> on_generation;
  CheckpointSink* checkpoints = nullptr;
  const checkpoint::Snapshot* restore = nullptr;
  bool load = false;                // the weights that the job and the program name
  bool separate_variables = false;  // TrainerOptions'
  int restarts = 0;                 // likewise
  int declared_members = 1;         // likewise
  // Which step's report, or which pass over a split (from 1) after its first batch, asks for a
  // stop; 0 and "": none.
  bool stop_before_start = false;
  int64_t stop_at_step = 0;
  std::string stop_in_split;
  int64_t stop_at_pass = 1;
  // Instead of all of these devices and nobody else.
  std::function<std::unique_ptr<Membership>()> membership;
};
RunResult Run(RunOptions options, std::function<void(TestProgram&)> set_up);
// On `replicas` CPU replicas.
RunResult RunLocally(Job job, int replicas, std::function<void(TestProgram&)> set_up);

// A dataset of the given tensors.
std::function<absl::StatusOr<data::DatasetPtr>()> Tensors2(at::Tensor x, at::Tensor y);

// w (scalar per feature) and b fitted by squared error: x [n, f], y [n]. The program most tests
// use: model "net" with "w" and "b", optimizer "sgd" with rate 0.1.
void LeastSquares(TestProgram& program, at::Tensor x, at::Tensor y);
at::Tensor SquaredError(TestProgram& program, const data::Batch& batch);

}  // namespace muster::testing
