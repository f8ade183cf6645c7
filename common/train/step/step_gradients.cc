#include "common/train/step/step_gradients.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "common/base/clock.h"
#include "common/flight/spans.h"

namespace muster {
namespace {

// Returns the parameters that require a gradient. Others were frozen after build(), and count as
// unused. Throws a ProgramError if a parameter already has a .grad, to which the new gradient would
// be added.
std::vector<at::Tensor> Inputs(const NamedOptimizer& optimizer) {
  std::vector<at::Tensor> inputs;
  const std::vector<at::Tensor>& parameters = optimizer.rule->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].requires_grad()) continue;
    if (parameters[i].grad().defined()) {
      throw StatusError(ProgramError(fmt::format(
          "parameter \"{}\" has a .grad before minimize(), which a backward() of the program's own "
          "left there: take such gradients with torch::autograd::grad, or clear .grad",
          optimizer.parameter_names[i])));
    }
    inputs.push_back(parameters[i]);
  }
  return inputs;
}

// Throws a ProgramError if a parameter was unfrozen after the first micro-batch, in which the
// step's buckets are made.
void CheckNotUnfrozen(const NamedOptimizer& optimizer) {
  for (size_t c = 0; c < optimizer.candidates.size(); ++c) {
    if (!optimizer.candidates[c].requires_grad() || optimizer.differentiated[c]) continue;
    throw StatusError(ProgramError(
        fmt::format("\"{}\" was unfrozen after the first micro-batch of a step: with "
                    "accumulate_steps above 1, unfreeze before the first minimize() of the step",
                    optimizer.candidate_names[c])));
  }
}

}  // namespace

void StepGradients::Begin(const StepPlan& plan) {
  steps_done_ = plan.steps_done;
  wants_norms_ = plan.summary;
  skipped_ = false;
  norms_.clear();
}

bool StepGradients::on_servers() const {
  return !parts_.replica->optimizers().empty() && optimizer(0).gradients->on_servers();
}

void StepGradients::Backward(const Goal& goal, const Pass& pass) {
  const Span span("backward");
  NamedOptimizer& of = optimizer(goal.optimizer);
  if (pass.first) {
    ThrowIfError(parts_.replica->optimizer_set().FollowProgram(goal.optimizer));
  } else {
    CheckNotUnfrozen(of);
  }
  if (goal.rescale) {
    of.gradients->Scale(*goal.rescale);
    parts_.embeddings->Scale(*goal.rescale);
  }
  std::vector<at::Tensor> inputs = Inputs(of);
  parts_.embeddings->AddLeaves(&inputs);
  if (pass.first)
    of.gradients->Begin({of.schedule->At(steps_done_), pass.early, /*norm=*/wants_norms_});
  of.gradients->BeginBackward(pass.last, pass.overlaps);
  std::vector<at::Tensor> roots = {goal.objective};
  std::vector<at::Tensor> seeds = {at::full_like(goal.objective, scaler_.scale())};
  for (const at::Tensor& output : parts_.collectives->outputs()) {
    roots.push_back(output);
    seeds.push_back(at::zeros_like(output));
  }
  {
    const OptimizerSet::BackwardPass receiving(&parts_.replica->optimizer_set(), goal.optimizer);
    const AutocastOff off(parts_.replica->device());
    // `inputs` is empty if all parameters of the optimizer are frozen. backward() would then use
    // every leaf.
    if (!inputs.empty())
      torch::autograd::backward(roots, seeds, pass.keep_graph, /*create_graph=*/false, inputs);
  }
  of.gradients->EndBackward();
  parts_.embeddings->Collect();
}

absl::Status StepGradients::ExchangeRows() {
  if (parts_.replica->embeddings().empty()) return absl::OkStatus();
  Enter(Phase::kReduce);
  const Span span("exchange embeddings");
  const MonotonicTime start = Clock::now();
  const absl::Status status = parts_.embeddings->Exchange();
  wait_seconds_ += Seconds(Clock::now() - start);
  return status;
}

absl::Status StepGradients::Reduce(const std::vector<int>& optimizers, at::Tensor* control) {
  Enter(Phase::kReduce);
  const Span span("wait for reductions");
  const MonotonicTime start = Clock::now();
  absl::Status status;
  std::vector<GradientSink*> sinks;
  // Servers update when they receive gradients, so an overflow must be detected before.
  std::vector<at::Tensor> pushed;
  for (const int o : optimizers) {
    GradientSink* sink = optimizer(o).gradients.get();
    sinks.push_back(sink);
    if (sink->on_servers())
      pushed.insert(pushed.end(), sink->gradients().begin(), sink->gradients().end());
  }
  // Also checks the gradients of rows, which are pushed later, because a step is pushed completely
  // or not at all.
  const bool rows_overflow = on_servers() && scaler_.active() && !parts_.embeddings->IsFinite();
  if (rows_overflow || !scaler_.Unscale(pushed)) {
    skipped_ = true;
    for (GradientSink* sink : sinks) sink->Cancel();
  } else if (!sinks.empty()) {
    at::Tensor none;
    const auto control_of = [&](const GradientSink* sink) {
      return sink == sinks.back() ? control : &none;
    };
    for (GradientSink* sink : sinks) sink->LaunchAll(*control_of(sink));
    for (GradientSink* sink : sinks) {
      const absl::Status finished = sink->Finish(control_of(sink));
      if (status.ok()) status = finished;
    }
  } else {
    *control = control->contiguous();
    status = parts_.communicator->AllReduce(BufferOf(*control), ReduceOp::kSum)->Wait();
  }
  wait_seconds_ += Seconds(Clock::now() - start);
  Enter(Phase::kForward);
  return status;
}

absl::Status StepGradients::Update(const std::vector<int>& optimizers) {
  const Span span("update");
  std::vector<at::Tensor> reduced;
  for (const int o : optimizers) {
    const GradientSink& sink = *optimizer(o).gradients;
    if (!sink.on_servers())
      reduced.insert(reduced.end(), sink.gradients().begin(), sink.gradients().end());
  }
  const bool finite = scaler_.Unscale(reduced);
  if (wants_norms_) {
    for (const int o : optimizers) norms_[optimizer(o).name] = optimizer(o).gradients->norm();
  }
  if (!finite) {
    skipped_ = true;
    return absl::OkStatus();
  }
  return CatchProgramErrors("the update", [&] {
    const at::NoGradGuard no_grad;
    for (const int o : optimizers) {
      NamedOptimizer& of = optimizer(o);
      if (of.gradients->on_servers()) continue;  // The servers have already made the update.
      of.rule->Update(of.gradients->gradients(), of.schedule->At(steps_done_));
    }
  });
}

absl::Status StepGradients::Commit(const std::vector<int>& optimizers) {
  if (!parts_.embeddings->Unscale(scaler_)) skipped_ = true;
  if (!skipped_) MUSTER_RETURN_IF_ERROR(Update(optimizers));
  // Update may have found an overflow and set skipped_.
  if (!skipped_) MUSTER_RETURN_IF_ERROR(parts_.embeddings->Push(steps_done_));
  return absl::OkStatus();
}

void StepGradients::End(StepResult* result) {
  result->skipped = skipped_;
  scaler_.Advance(skipped_);
  if (scaler_.active()) result->loss_scale = scaler_.scale();
  const std::vector<NamedOptimizer>& optimizers = parts_.replica->optimizers();
  for (const NamedOptimizer& optimizer : optimizers)
    result->learning_rates[optimizer.name] = optimizer.schedule->At(steps_done_);
  if (!optimizers.empty()) result->learning_rate = result->learning_rates[optimizers[0].name];
  result->gradient_norms = norms_;
}

}  // namespace muster
