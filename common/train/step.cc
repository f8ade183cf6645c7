#include "common/train/step.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>

#include "common/data/pipeline.h"
#include "common/train/step_impl.h"

namespace muster {
namespace {

// The fixed part of the control data; metric increments, reported values and buffers follow.
enum Control { kLoss = 0, kExamples, kStop, kShape, kFixedControls };

// A small number that two replicas which reported other names, or minimized in another order,
// hardly share. The sum over all replicas must be num_replicas times it, exactly, in float32.
int ShapeHash(const std::string& shape, int num_replicas) {
  const uint64_t bound = std::max<uint64_t>(2, (1u << 23) / static_cast<uint64_t>(num_replicas));
  return static_cast<int>(std::hash<std::string>{}(shape) % bound);
}

}  // namespace

absl::Status StepImpl::Reduce(int index, at::Tensor* control) {
  Enter(Phase::kReduce);
  const MonotonicTime start = Clock::now();
  absl::Status status;
  if (index >= 0) {
    GradientSink& sink = *replica_->optimizers()[index].gradients;
    if (sink.updates() && !scaler_.Unscale(sink.gradients())) {
      skipped_ = true;
      sink.Cancel();
    } else {
      status = sink.Finish(control);
    }
  } else {
    *control = control->contiguous();
    status = communicator_->AllReduce(BufferOf(*control), ReduceOp::kSum)->Wait();
  }
  wait_seconds_ += Seconds(Clock::now() - start);
  Enter(Phase::kForward);
  return status;
}

absl::Status StepImpl::Update(int index) {
  NamedOptimizer& optimizer = replica_->optimizers()[index];
  if (optimizer.gradients->updates()) return absl::OkStatus();  // with the reduction
  if (!scaler_.Unscale(optimizer.gradients->gradients())) {
    skipped_ = true;
    return absl::OkStatus();
  }
  at::NoGradGuard no_grad;
  return CatchProgramErrors("the update", [&] {
    optimizer.rule->Update(optimizer.gradients->gradients(),
                           optimizer.schedule->At(plan_.steps_done));
  });
}

at::Tensor StepImpl::MakeControl() {
  at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().dtype(at::kFloat).device(replica_->device());
  for (const auto& [name, value] : values_) shape_ += name + ";";
  std::vector<at::Tensor> pieces;
  pieces.push_back(objective_sum_.defined() ? objective_sum_.to(at::kFloat).reshape({1})
                                            : at::zeros({1}, options));
  pieces.push_back(at::tensor({static_cast<double>(local_examples_),
                               options_.first_local && plan_.stop_requested ? 1.0 : 0.0,
                               static_cast<double>(ShapeHash(shape_, communicator_->size()))},
                              at::kFloat)
                       .to(replica_->device()));
  for (size_t m = 0; m < replica_->metrics().size(); ++m) {
    const int64_t width = replica_->metrics()[m].metric->width();
    const auto found = increments_.find(static_cast<int>(m));
    pieces.push_back(found == increments_.end() ? at::zeros({width}, options)
                                                : found->second.to(at::kFloat).reshape({width}));
  }
  for (const auto& [name, value] : values_) pieces.push_back(value.to(at::kFloat).reshape({1}));
  // Alone there is nothing to average, and float32 would round what is wider.
  if (communicator_->size() == 1) return at::cat(pieces);
  const double share = static_cast<double>(local_examples_) /
                       std::max<double>(1, static_cast<double>(plan_.global_examples));
  for (const at::Tensor& buffer : replica_->float_buffers()) {
    // A replica without examples has no statistics (0/0): it contributes nothing.
    pieces.push_back(local_examples_ == 0 ? at::zeros({buffer.numel()}, options)
                                          : buffer.detach().to(at::kFloat).reshape({-1}) * share);
  }
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
  int64_t at = kFixedControls;
  int64_t width = 0;
  for (const NamedMetric& metric : replica_->metrics()) width += metric.metric->width();
  result->metric_increments.assign(c + at, c + at + width);
  at += width;
  for (const auto& [name, value] : values_) result->values[name] = c[at++];
  if (communicator_->size() > 1) ApplyBuffers(reduced.narrow(0, at, reduced.numel() - at));
  return absl::OkStatus();
}

void StepImpl::ApplyBuffers(const at::Tensor& averaged) {
  at::NoGradGuard no_grad;
  int64_t at = 0;
  for (const at::Tensor& buffer : replica_->float_buffers()) {
    buffer.detach().copy_(averaged.narrow(0, at, buffer.numel()).reshape(buffer.sizes()));
    at += buffer.numel();
  }
}

void StepImpl::Reset() {
  embeddings_.Begin();
  shape_.clear();
  deferred_ = -1;
  objective_sum_ = at::Tensor();
  extra_losses_.clear();
  regularizers_.clear();
  values_.clear();
  increments_.clear();
  on_commit_.clear();
  summary_ = {};
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
    SeedDefaultGenerator();
    AutocastScope autocast(job_.precision, replica_->device());
    Step step(this);
    MUSTER_RETURN_IF_ERROR(CatchProgramErrors("train_step", [&] { body(step, part); }));
    if (!extra_losses_.empty() || !regularizers_.empty()) {
      return ProgramError(
          "add_loss or regularize was called after the last minimize() of the step: nothing "
          "minimizes it");
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
  if (!buffers_.empty()) buffers_undo_ = Clone(buffers_);
  StepResult result;
  Reset();
  absl::Status status = RunMicroBatches(batch, body);
  if (start_again_) {
    RollBack();
    immediate_ = true;
    Reset();
    status = RunMicroBatches(batch, body);
  }
  if (status.ok()) status = CatchProgramErrors("the step", [&] { ThrowIfError(Commit(&result)); });
  if (!status.ok()) {
    // A peer may never come to the buckets that were launched already: they are aborted, not waited
    // for. Once committed there is nothing to take back.
    if (communicator_->size() > 1) communicator_->Abort(PeerLost(Message(status)));
    if (!committed_) RollBack();
    return status;
  }
  result.wait_seconds = wait_seconds_;
  result.compute_seconds = Seconds(Clock::now() - start) - wait_seconds_;
  return result;
}

absl::Status StepImpl::ExchangeEmbeddings() {
  if (replica_->embeddings().empty()) return absl::OkStatus();
  Enter(Phase::kReduce);
  const MonotonicTime start = Clock::now();
  const absl::Status status = embeddings_.Exchange();
  wait_seconds_ += Seconds(Clock::now() - start);
  return status;
}

absl::Status StepImpl::Commit(StepResult* result) {
  MUSTER_RETURN_IF_ERROR(ExchangeEmbeddings());
  at::Tensor control = MakeControl();
  if (deferred_ >= 0 &&
      control.numel() > replica_->optimizers()[deferred_].gradients->control_capacity()) {
    at::Tensor none;
    MUSTER_RETURN_IF_ERROR(Reduce(deferred_, &none));
    MUSTER_RETURN_IF_ERROR(Reduce(-1, &control));
  } else {
    MUSTER_RETURN_IF_ERROR(Reduce(deferred_, &control));
  }
  Enter(Phase::kUpdate);
  MUSTER_RETURN_IF_ERROR(ReadControl(control, result));
  // From here on every replica commits.
  committed_ = settled_ = true;
  if (!embeddings_.Unscale(scaler_)) skipped_ = true;
  if (deferred_ >= 0 && !skipped_) MUSTER_RETURN_IF_ERROR(Update(deferred_));
  // Update may have found an overflow of its own.
  if (!skipped_) MUSTER_RETURN_IF_ERROR(embeddings_.Push(plan_.steps_done));
  result->skipped = skipped_;
  result->summary = std::move(summary_);
  scaler_.Advance(skipped_);
  if (!replica_->optimizers().empty())
    result->learning_rate = replica_->optimizers()[0].schedule->At(plan_.steps_done);
  return CatchProgramErrors("on_commit", [&] {
    at::NoGradGuard no_grad;
    for (const auto& action : on_commit_) action();
  });
}

void StepImpl::RollBack() {
  for (NamedOptimizer& optimizer : replica_->optimizers()) optimizer.gradients->Cancel();
  // The state was saved at the first minimize(), after the forward pass had moved the buffers;
  // theirs is the older copy and goes last.
  if (state_saved_) CopyBack(state_undo_, replica_->state());
  if (!buffers_.empty()) CopyBack(buffers_undo_, buffers_);
  state_saved_ = false;
}

// ---- StepRunner forwards.

StepRunner::StepRunner(Replica* replica, Communicator* communicator, const Job& job,
                       StepRunnerOptions options)
    : impl_(std::make_unique<StepImpl>(replica, communicator, job, std::move(options))) {}
StepRunner::~StepRunner() = default;
absl::StatusOr<StepResult> StepRunner::Run(const StepPlan& plan, const data::Batch& batch,
                                           int64_t local_examples, const Body& body) {
  return impl_->Run(plan, batch, local_examples, body);
}
std::vector<double> StepRunner::scaler_state() const { return impl_->scaler_.state(); }
void StepRunner::set_scaler_state(const std::vector<double>& state) {
  impl_->scaler_.set_state(state);
}

}  // namespace muster
