#include "common/train/step/step.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/faults/process_fault.h"
#include "common/base/logging.h"
#include "common/data/pipeline.h"
#include "common/flight/spans.h"
#include "common/train/step/loss_graph.h"
#include "common/train/step/step_impl.h"

namespace muster {
namespace {

// Indices of the fixed part of the control data. The input waits of all replicas follow, then
// metric increments, reported values and buffers.
enum Control { kLoss = 0, kExamples, kStop, kShape, kFixedControls };

// Returns a small hash of the calls in a step. It probably differs between replicas that reported
// different names or minimized in a different order. It is so small that its sum over all replicas
// is exact in float32.
int ShapeHash(const std::string& shape, int num_replicas) {
  const uint64_t bound = std::max<uint64_t>(2, (1u << 23) / static_cast<uint64_t>(num_replicas));
  return static_cast<int>(std::hash<std::string>{}(shape) % bound);
}

}  // namespace

absl::Status StepImpl::Reduce(const std::vector<int>& optimizers, at::Tensor* control) {
  Enter(Phase::kReduce);
  const Span span("wait for reductions");
  const MonotonicTime start = Clock::now();
  absl::Status status;
  std::vector<GradientSink*> sinks;
  // Servers update when they receive gradients, so an overflow must be detected before.
  std::vector<at::Tensor> pushed;
  for (const int o : optimizers) {
    GradientSink* sink = replica_->optimizers()[o].gradients.get();
    sinks.push_back(sink);
    if (sink->updates())
      pushed.insert(pushed.end(), sink->gradients().begin(), sink->gradients().end());
  }
  // Also checks the gradients of rows, which are pushed later, because a step is pushed completely
  // or not at all.
  const bool rows_overflow = on_servers() && scaler_.active() && !embeddings_.IsFinite();
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
    status = communicator_->AllReduce(BufferOf(*control), ReduceOp::kSum)->Wait();
  }
  wait_seconds_ += Seconds(Clock::now() - start);
  Enter(Phase::kForward);
  return status;
}

absl::Status StepImpl::Update(const std::vector<int>& optimizers) {
  const Span span("update");
  std::vector<at::Tensor> reduced;
  for (const int o : optimizers) {
    const GradientSink& sink = *replica_->optimizers()[o].gradients;
    if (!sink.updates())
      reduced.insert(reduced.end(), sink.gradients().begin(), sink.gradients().end());
  }
  const bool finite = scaler_.Unscale(reduced);
  if (plan_.summary) {
    for (const int o : optimizers)
      gradient_norms_[NameOf(o)] = replica_->optimizers()[o].gradients->norm();
  }
  if (!finite) {
    skipped_ = true;
    return absl::OkStatus();
  }
  return CatchProgramErrors("the update", [&] {
    const at::NoGradGuard no_grad;
    for (const int o : optimizers) {
      NamedOptimizer& optimizer = replica_->optimizers()[o];
      if (optimizer.gradients->updates()) continue;  // The servers have already made the update.
      optimizer.rule->Update(optimizer.gradients->gradients(),
                             optimizer.schedule->At(plan_.steps_done));
    }
  });
}

at::Tensor StepImpl::MakeControl() {
  at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().dtype(at::kFloat).device(replica_->device());
  for (const auto& [name, value] : values_) shape_ += name + (value.weights.defined() ? "*;" : ";");
  std::vector<at::Tensor> pieces;
  pieces.push_back(objective_sum_.defined() ? objective_sum_.to(at::kFloat).reshape({1})
                                            : at::zeros({1}, options));
  pieces.push_back(at::tensor({static_cast<double>(local_examples_),
                               options_.first_local && plan_.stop_requested ? 1.0 : 0.0,
                               static_cast<double>(ShapeHash(shape_, communicator_->size()))},
                              at::kFloat)
                       .to(replica_->device()));
  std::vector<float> input(communicator_->size());
  input[communicator_->rank()] = static_cast<float>(plan_.input_seconds);
  pieces.push_back(at::tensor(input).to(replica_->device()));
  for (size_t m = 0; m < replica_->metrics().size(); ++m) {
    const int64_t width = replica_->metrics()[m].metric->width();
    const auto found = increments_.find(static_cast<int>(m));
    pieces.push_back(found == increments_.end() ? at::zeros({width}, options)
                                                : found->second.to(at::kFloat).reshape({width}));
  }
  for (const auto& [name, value] : values_) {
    at::Tensor sum = value.sum;
    if (value.weights.defined() && !WeightsOverReplicas())
      sum = at::where(value.weights.ne(0), sum / value.weights, 0) * WeightedShare();
    pieces.push_back(sum.to(at::kFloat).reshape({1}));
    if (value.weights.defined()) pieces.push_back(value.weights.to(at::kFloat).reshape({1}));
  }
  // A single replica has nothing to average. float32 control data would round float64 buffers.
  if (communicator_->size() == 1) return at::cat(pieces);
  // If the whole batch is damaged, no replica has an example. The buffers of all replicas then have
  // equal weight.
  const bool none = plan_.global_examples == 0;
  const double share =
      none ? 1.0 / communicator_->size()
           : static_cast<double>(local_examples_) / static_cast<double>(plan_.global_examples);
  buffers_.AppendTo(&pieces, share, local_examples_ > 0 || none);
  return at::cat(pieces);
}

absl::Status StepImpl::ReadControl(const at::Tensor& reduced, StepResult* result) {
  const at::Tensor host = reduced.to(at::kCPU, at::kDouble).contiguous();
  const double* c = host.const_data_ptr<double>();
  if (c[kShape] !=
      static_cast<double>(ShapeHash(shape_, communicator_->size())) * communicator_->size()) {
    return ProgramError(
        "the program did not do the same on all replicas in this step: every replica must call "
        "minimize() in the same order and report() "
        "the same names, with an empty batch too");
  }
  result->loss = c[kLoss];
  result->examples = static_cast<int64_t>(c[kExamples]);
  result->stop = c[kStop] > 0;
  int64_t at = kFixedControls + communicator_->size();
  result->input_seconds = *std::max_element(c + kFixedControls, c + at);
  int64_t width = 0;
  for (const NamedMetric& metric : replica_->metrics()) width += metric.metric->width();
  result->metric_increments.assign(c + at, c + at + width);
  at += width;
  for (const auto& [name, value] : values_) {
    double& reported = result->values[name] = c[at++];
    if (!value.weights.defined()) continue;
    const double weights = c[at++];
    if (WeightsOverReplicas()) reported = weights != 0 ? reported / weights : 0;
    if (job_.loss_reduction == LossReduction::kGlobal) result->value_weights[name] = weights;
  }
  if (communicator_->size() == 1) return absl::OkStatus();
  return buffers_.Apply(reduced.narrow(0, at, reduced.numel() - at));
}

void StepImpl::Reset() {
  embeddings_.Begin();
  shape_.clear();
  deferred_.clear();
  objective_sum_ = at::Tensor();
  extra_losses_.clear();
  regularizers_.clear();
  weighted_.clear();
  updated_.clear();
  values_.clear();
  gradient_norms_.clear();
  collectives_->Begin();
  increments_.clear();
  on_commit_.clear();
  summary_ = {};
  if (LossGraph* const graph = LossGraph::Current()) graph->Clear();
  state_saved_ = false;
  skipped_ = false;
  committed_ = false;
  start_again_ = false;
}

absl::Status StepImpl::RunMicroBatches(const data::Batch& batch, const StepRunner::Body& body) {
  for (micro_batch_ = 0; micro_batch_ < micro_batches_; ++micro_batch_) {
    const data::Slice slice = data::ReplicaSlice(0, local_examples_, micro_batch_, micro_batches_);
    micro_examples_ = slice.size();
    data::Batch part = batch;
    if (micro_batches_ > 1) {
      for (at::Tensor& t : part) t = t.narrow(0, slice.begin, slice.size());
    }
    minimized_.clear();
    generator_seeded_ = false;
    embeddings_.BeginMicroBatch();
    collectives_->ForgetOutputs();
    SeedDefaultGenerator();
    const Scope current(this);
    AutocastScope autocast(job_.precision, replica_->device());
    Step step(this);
    const Span span("train_step");
    ForwardBegins();
    MUSTER_RETURN_IF_ERROR(CatchProgramErrors("train_step", [&] { body(step, part); }));
    MUSTER_RETURN_IF_ERROR(CheckNothingDrawn());
    if (!extra_losses_.empty() || !regularizers_.empty()) {
      return ProgramError(
          "add_loss or regularize was called after the last minimize() of the step, or for an "
          "optimizer that was not minimized after it: nothing minimizes it");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<StepResult> StepImpl::Run(const StepPlan& plan, const data::Batch& batch,
                                         int64_t local_examples, const StepRunner::Body& body) {
  const MonotonicTime start = Clock::now();
  Enter(Phase::kForward);
  plan_ = plan;
  local_examples_ = local_examples;
  micro_batches_ = static_cast<int>(job_.accumulate_steps);
  wait_seconds_ = 0;
  buffers_.Keep();
  requires_grad_ = replica_->requires_grad();
  StepResult result;
  Reset();
  absl::Status status = RunMicroBatches(batch, body);
  if (start_again_) {
    status = CatchProgramErrors("taking the step back", [&] { RollBack(); });
    immediate_ = true;
    Reset();
    if (status.ok()) status = RunMicroBatches(batch, body);
  }
  if (status.ok()) status = CatchProgramErrors("the step", [&] { ThrowIfError(Commit(&result)); });
  collectives_->End();
  if (!status.ok()) {
    // A peer may never launch the buckets that this replica has launched, so they are aborted.
    // After the commit, a step is not rolled back.
    if (communicator_->size() > 1) communicator_->Abort(PeerLost(Message(status)));
    return committed_ ? status : TakeBack(status);
  }
  result.wait_seconds = wait_seconds_;
  result.compute_seconds = Seconds(Clock::now() - start) - wait_seconds_;
  return result;
}

absl::Status StepImpl::ExchangeEmbeddings() {
  if (replica_->embeddings().empty()) return absl::OkStatus();
  Enter(Phase::kReduce);
  const Span span("exchange embeddings");
  const MonotonicTime start = Clock::now();
  const absl::Status status = embeddings_.Exchange();
  wait_seconds_ += Seconds(Clock::now() - start);
  return status;
}

absl::Status StepImpl::Commit(StepResult* result) {
  MUSTER_RETURN_IF_ERROR(ExchangeEmbeddings());
  at::Tensor control = MakeControl();
  if (!deferred_.empty() &&
      control.numel() > replica_->optimizers()[deferred_.back()].gradients->control_capacity()) {
    at::Tensor none;
    MUSTER_RETURN_IF_ERROR(Reduce(deferred_, &none));
    MUSTER_RETURN_IF_ERROR(Reduce({}, &control));
  } else {
    MUSTER_RETURN_IF_ERROR(Reduce(deferred_, &control));
  }
  Enter(Phase::kUpdate);
  MUSTER_RETURN_IF_ERROR(ReadControl(control, result));
  // From here on, every replica commits.
  WarnOfUnused();
  committed_ = settled_ = true;
  replica_->RetainRules(false);
  if (!embeddings_.Unscale(scaler_)) skipped_ = true;
  if (!skipped_) MUSTER_RETURN_IF_ERROR(Update(deferred_));
  // Update may have found an overflow and set skipped_.
  if (!skipped_) MUSTER_RETURN_IF_ERROR(embeddings_.Push(plan_.steps_done));
  result->skipped = skipped_;
  result->summary = std::move(summary_);
  scaler_.Advance(skipped_);
  if (scaler_.active()) result->loss_scale = scaler_.scale();
  for (const NamedOptimizer& optimizer : replica_->optimizers())
    result->learning_rates[optimizer.name] = optimizer.schedule->At(plan_.steps_done);
  if (!replica_->optimizers().empty()) result->learning_rate = result->learning_rates[NameOf(0)];
  result->gradient_norms = gradient_norms_;
  return CatchProgramErrors("on_commit", [&] {
    at::NoGradGuard no_grad;
    for (const auto& action : on_commit_) action();
    if (on_commit_.empty()) return;
    // In the central_storage strategy, the variables must receive the program's changes.
    for (NamedOptimizer& optimizer : replica_->optimizers()) optimizer.rule->Begin();
  });
}

// Logs the parameters without a gradient in the first step. This is not an error, because it may be
// intended. Typical mistakes are a layer that forward() does not use, and a custom autograd
// function that breaks the graph.
void StepImpl::WarnOfUnused() const {
  if (plan_.steps_done > 0 || replica() != 0 || !options_.first_local) return;
  for (const NamedOptimizer& optimizer : replica_->optimizers()) {
    const auto o = static_cast<int>(&optimizer - replica_->optimizers().data());
    const auto has = [o](const std::vector<int>& all) {
      return std::find(all.begin(), all.end(), o) != all.end();
    };
    if (!has(deferred_) && !has(updated_)) continue;
    std::vector<std::string> names;
    for (size_t i = 0; i < optimizer.parameter_names.size(); ++i) {
      if (!optimizer.gradients->used(static_cast<int>(i)) &&
          optimizer.rule->parameters()[i].requires_grad())
        names.push_back(optimizer.parameter_names[i]);
    }
    if (names.empty()) continue;
    constexpr size_t kShown = 8;
    const size_t more = names.size() > kShown ? names.size() - kShown : 0;
    names.resize(names.size() - more);
    LogWarning(
        "{} of the {} parameters of optimizer \"{}\" got no gradient in the first step, and are "
        "updated only in steps where they get one: {}{}",
        names.size() + more, optimizer.parameter_names.size(), optimizer.name,
        fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
  }
}

// Rolls back after the error `why` and returns it. A device that has failed permanently also fails
// here. The error then also marks this process's state as lost.
absl::Status StepImpl::TakeBack(const absl::Status& why) {
  const absl::Status undone = CatchProgramErrors("taking the step back", [&] { RollBack(); });
  if (undone.ok() || IsProcessFault(why) || ExitCodeOf(why) != ExitCode::kRetryable) return why;
  return ProcessFault(fmt::format("{}; then {}", Message(why), Message(undone)),
                      /*uncertain=*/false);
}

void StepImpl::RollBack() {
  for (NamedOptimizer& optimizer : replica_->optimizers()) optimizer.gradients->Cancel();
  // The first minimize() saved state_undo_ after the forward pass had changed the buffers. The
  // copies in buffers_ are older and are therefore restored last.
  if (state_saved_) CopyBack(state_undo_, state_);
  buffers_.PutBack();
  state_saved_ = false;
  // Restores requires_grad if the step is given up, because a repeated step freezes and unfreezes
  // again. A step that starts again in the same call keeps the flags: the program may have set them
  // by data that it does not receive a second time.
  replica_->PutBackRules();
  replica_->RetainRules(false);
  if (!start_again_) replica_->set_requires_grad(requires_grad_);
}

// ---- StepRunner forwards.

StepRunner::StepRunner(Replica* replica, collective::Communicator* communicator, const Job& job,
                       StepRunnerOptions options)
    : impl_(std::make_unique<StepImpl>(replica, communicator, job, std::move(options))) {}
StepRunner::~StepRunner() = default;
absl::StatusOr<StepResult> StepRunner::Run(const StepPlan& plan, const data::Batch& batch,
                                           int64_t local_examples, const Body& body) {
  return impl_->Run(plan, batch, local_examples, body);
}
void StepRunner::Begin() { impl_->Begin(); }
std::vector<double> StepRunner::scaler_state() const { return impl_->scaler_.state(); }
void StepRunner::set_scaler_state(const std::vector<double>& state) {
  impl_->scaler_.set_state(state);
}

}  // namespace muster
