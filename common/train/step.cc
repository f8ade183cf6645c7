#include "common/train/step.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <optional>

#include "common/data/pipeline.h"
#include "common/train/precision.h"

namespace muster {

uint64_t MixSeed(uint64_t seed, std::initializer_list<uint64_t> parts) {
  uint64_t x = seed;
  for (uint64_t part : parts) {
    x += 0x9e3779b97f4a7c15ull + part;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    x ^= x >> 31;
  }
  return x;
}

namespace {

// The fixed part of the control data; metric increments, reported values and buffers follow.
enum Control { kLoss = 0, kExamples, kStop, kShape, kFixedControls };

// A small number that two replicas which reported other names, or minimized in another order,
// hardly share. The sum over all replicas must be num_replicas times it, exactly, in float32.
int ShapeHash(const std::string& shape, int num_replicas) {
  const uint64_t bound = std::max<uint64_t>(2, (1u << 23) / static_cast<uint64_t>(num_replicas));
  return static_cast<int>(std::hash<std::string>{}(shape) % bound);
}

// A program may freeze parameters after build(); the others' flags say that nobody used them.
std::vector<at::Tensor> Trainable(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> trainable;
  std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(trainable),
               [](const at::Tensor& p) { return p.requires_grad(); });
  return trainable;
}

std::vector<at::Tensor> Clone(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& t : tensors) copies.push_back(t.detach().clone());
  return copies;
}

void CopyBack(const std::vector<at::Tensor>& copies, const std::vector<at::Tensor>& tensors) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].detach().copy_(copies[i]);
}

}  // namespace

class StepImpl {
 public:
  StepImpl(Replica* replica, Communicator* communicator, const Job& job, StepRunnerOptions options)
      : replica_(replica),
        communicator_(communicator),
        job_(job),
        options_(std::move(options)),
        scaler_(job.precision) {
    for (const NamedModel& model : replica_->models()) {
      for (const auto& [name, buffer] : model.buffers) buffers_.push_back(buffer);
    }
  }

  absl::StatusOr<StepResult> Run(const StepPlan& plan, const data::Batch& batch,
                                 int64_t local_examples, const StepRunner::Body& body);

  // What Step forwards.
  void Minimize(OptimizerHandle handle, const at::Tensor& per_example_loss);
  void AddLoss(const at::Tensor& loss) {
    CheckPerExample(loss, "add_loss");
    extra_losses_.push_back(loss);
  }
  void Regularize(const at::Tensor& loss) {
    if (loss.numel() != 1)
      throw StatusError(ProgramError(
          fmt::format("regularize needs a scalar, got shape [{}]", fmt::join(loss.sizes(), ", "))));
    regularizers_.push_back(loss.reshape({}));
  }
  void Report(const std::string& name, const at::Tensor& value) {
    CheckPerExample(value, fmt::format("report(\"{}\")", name));
    if (name == "loss" || name == "learning_rate" || name == "examples_per_second") {
      throw StatusError(
          ProgramError(fmt::format("report(\"{}\"): that name is the loop's own", name)));
    }
    Add(&values_[name], value.detach().sum(at::kDouble) * LossScale());
  }
  void UpdateMetric(MetricHandle handle, const at::Tensor& output, const at::Tensor& target) {
    at::NoGradGuard no_grad;
    const Metric& metric = *replica_->metrics().at(handle.index).metric;
    Add(&increments_[handle.index],
        metric.Increment(output.detach(), target.defined() ? target.detach() : target));
  }
  at::Generator Generator();

  Replica* const replica_;
  Communicator* const communicator_;
  const Job& job_;
  const StepRunnerOptions options_;
  StepPlan plan_;
  std::vector<std::function<void()>> on_commit_;
  LossScaler scaler_;

 private:
  void Reset();
  absl::Status RunMicroBatches(const data::Batch& batch, const StepRunner::Body& body);
  void SeedDefaultGenerator();
  uint64_t ReplicaSeed(uint64_t purpose) const {
    return MixSeed(job_.seed,
                   {purpose, static_cast<uint64_t>(plan_.steps_done + 1),
                    static_cast<uint64_t>(options_.replica), static_cast<uint64_t>(micro_batch_)});
  }
  // What one example weighs in the objective.
  double LossScale() const;
  void CheckPerExample(const at::Tensor& value, const std::string& what) const;
  at::Tensor Objective(const at::Tensor& per_example_loss);
  void Backward(int optimizer, const at::Tensor& objective);
  absl::Status Reduce(int optimizer, at::Tensor* control);
  absl::Status Update(int optimizer);
  at::Tensor MakeControl();
  absl::Status ReadControl(const at::Tensor& control, StepResult* result);
  void ApplyBuffers(const at::Tensor& averaged);
  absl::Status Commit(StepResult* result);
  void RollBack();
  static void Add(at::Tensor* sum, const at::Tensor& value) {
    *sum = sum->defined() ? *sum + value : value;
  }
  void Enter(Phase phase) {
    if (options_.on_phase) options_.on_phase(phase);
  }

  bool start_again_ = false;
  bool immediate_ = false;  // updates are applied at each minimize(), not at the commit
  std::vector<at::Tensor> buffers_, buffers_undo_;
  std::vector<at::Tensor> state_undo_;  // of Replica::state(), in immediate mode
  bool state_saved_ = false;

  at::Generator generator_;        // the replica's own, made when first asked for
  bool generator_seeded_ = false;  // for this micro-batch

  // Of the step under way.
  int64_t local_examples_ = 0, micro_examples_ = 0;
  int micro_batch_ = 0, micro_batches_ = 1;
  std::vector<int> minimized_;  // optimizers, in this micro-batch
  std::string shape_;           // what every replica must have done alike
  int deferred_ = -1;           // optimizer whose update waits for the commit
  at::Tensor objective_sum_;
  std::vector<at::Tensor> extra_losses_, regularizers_;
  std::map<std::string, at::Tensor> values_;
  std::map<int, at::Tensor> increments_;  // by metric
  bool skipped_ = false;
  bool committed_ = false;  // past the last reduction
  double wait_seconds_ = 0;
};

double StepImpl::LossScale() const {
  switch (job_.loss_reduction) {
    case LossReduction::kGlobal:
      return 1.0 / static_cast<double>(std::max<int64_t>(1, plan_.global_examples));
    case LossReduction::kNominal:
      return 1.0 / static_cast<double>(options_.global_batch_size);
    case LossReduction::kLocalMean:
      return 1.0 / (static_cast<double>(options_.num_replicas) *
                    static_cast<double>(std::max<int64_t>(1, local_examples_)));
  }
  return 1.0;
}

void StepImpl::CheckPerExample(const at::Tensor& value, const std::string& what) const {
  if (value.defined() && value.dim() == 1 && value.size(0) == micro_examples_) return;
  throw StatusError(ProgramError(fmt::format(
      "{} needs one value for each example, shape [{}], and got shape [{}]: do not reduce over the "
      "batch",
      what, micro_examples_,
      value.defined() ? fmt::format("{}", fmt::join(value.sizes(), ", ")) : "undefined")));
}

at::Generator StepImpl::Generator() {
  if (!generator_.defined()) {
    at::Generator shared = at::globalContext().defaultGenerator(replica_->device());
    std::lock_guard<std::mutex> lock(shared.mutex());
    generator_ = shared.clone();
  }
  if (!generator_seeded_) generator_.set_current_seed(ReplicaSeed(1));
  generator_seeded_ = true;
  return generator_;
}

void StepImpl::SeedDefaultGenerator() {
  if (replica_->device().is_cpu() && !options_.first_local) return;
  at::Generator generator = at::globalContext().defaultGenerator(replica_->device());
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(ReplicaSeed(0));
}

at::Tensor StepImpl::Objective(const at::Tensor& per_example_loss) {
  at::Tensor per_example = per_example_loss;
  for (const at::Tensor& extra : extra_losses_) per_example = per_example + extra;
  at::Tensor objective =
      per_example
          .to(at::kFloat == per_example.scalar_type() || per_example.scalar_type() == at::kDouble
                  ? per_example.scalar_type()
                  : at::kFloat)
          .sum() *
      LossScale();
  // Reported in double precision up to the reduction: a float32 sum over a large batch loses
  // digits.
  at::Tensor reported = per_example.detach().sum(at::kDouble) * LossScale();
  for (const at::Tensor& regularizer : regularizers_) {
    const at::Tensor share =
        regularizer / (static_cast<double>(options_.num_replicas) * micro_batches_);
    objective = objective + share;
    reported = reported + share.detach().to(at::kDouble);
  }
  extra_losses_.clear();
  regularizers_.clear();
  Add(&objective_sum_, reported);
  return objective;
}

void StepImpl::Minimize(OptimizerHandle handle, const at::Tensor& per_example_loss) {
  if (handle.index < 0 || handle.index >= static_cast<int>(replica_->optimizers().size())) {
    throw StatusError(
        ProgramError("minimize was called with an optimizer that build() did not declare"));
  }
  CheckPerExample(per_example_loss, "the loss");
  if (!immediate_ && !minimized_.empty()) {
    start_again_ = true;
    throw StatusError(
        ProgramError("minimize was called a second time in this step"));  // Run catches it
  }
  if (micro_batches_ > 1 && std::count(minimized_.begin(), minimized_.end(), handle.index) > 0) {
    throw StatusError(
        ProgramError(fmt::format("optimizer \"{}\" is minimized twice in one micro-batch: "
                                 "accumulate_steps above 1 cannot say which calls belong together",
                                 replica_->optimizers()[handle.index].name)));
  }
  minimized_.push_back(handle.index);
  shape_ += fmt::format("m{};", handle.index);
  const at::Tensor objective = Objective(per_example_loss);
  if (!objective.requires_grad())
    throw StatusError(ProgramError("the loss does not depend on any parameter"));
  Backward(handle.index, objective);
  if (micro_batch_ + 1 < micro_batches_) return;
  if (!immediate_) {
    deferred_ = handle.index;
    return;
  }
  if (!state_saved_) {
    const auto state = replica_->state();
    if (state_undo_.empty()) {
      state_undo_ = Clone(state);
    } else {
      CopyBack(state, state_undo_);
    }
    state_saved_ = true;
  }
  at::Tensor none;
  ThrowIfError(Reduce(handle.index, &none));
  ThrowIfError(Update(handle.index));
  // Casts of weights are cached by tensor, not by version: later losses of this step must see the
  // update.
  if (job_.precision != Precision::kFloat32) at::autocast::clear_cache();
}

void StepImpl::Backward(int index, const at::Tensor& objective) {
  NamedOptimizer& optimizer = replica_->optimizers()[index];
  const bool first = micro_batch_ == 0, last = micro_batch_ + 1 == micro_batches_;
  if (first) optimizer.buckets->Begin();
  optimizer.buckets->BeginBackward(last);
  replica_->set_active(index);
  const at::Tensor seed = at::full_like(objective, scaler_.scale());
  try {
    torch::autograd::backward({objective}, {seed}, /*retain_graph=*/immediate_,
                              /*create_graph=*/false, Trainable(optimizer.rule->parameters()));
  } catch (...) {
    replica_->set_active(-1);
    throw;
  }
  replica_->set_active(-1);
  optimizer.buckets->EndBackward();
}

absl::Status StepImpl::Reduce(int index, at::Tensor* control) {
  Enter(Phase::kReduce);
  const MonotonicTime start = Clock::now();
  absl::Status status;
  if (index >= 0) {
    status = replica_->optimizers()[index].buckets->Finish(control);
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
  if (!scaler_.Unscale(optimizer.buckets->gradients())) {
    skipped_ = true;
    return absl::OkStatus();
  }
  at::NoGradGuard no_grad;
  return CatchProgramErrors("the update", [&] {
    optimizer.rule->Update(optimizer.buckets->gradients(),
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
                               static_cast<double>(ShapeHash(shape_, options_.num_replicas))},
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
  if (options_.num_replicas == 1) return at::cat(pieces);
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
      static_cast<double>(ShapeHash(shape_, options_.num_replicas)) * options_.num_replicas) {
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
  if (options_.num_replicas > 1) ApplyBuffers(reduced.narrow(0, at, reduced.numel() - at));
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
  shape_.clear();
  deferred_ = -1;
  objective_sum_ = at::Tensor();
  extra_losses_.clear();
  regularizers_.clear();
  values_.clear();
  increments_.clear();
  on_commit_.clear();
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
    communicator_->Abort(PeerLost(Message(status)));
    if (!committed_) RollBack();
    return status;
  }
  result.wait_seconds = wait_seconds_;
  result.compute_seconds = Seconds(Clock::now() - start) - wait_seconds_;
  return result;
}

absl::Status StepImpl::Commit(StepResult* result) {
  at::Tensor control = MakeControl();
  if (deferred_ >= 0 &&
      control.numel() > replica_->optimizers()[deferred_].buckets->control_capacity()) {
    at::Tensor none;
    MUSTER_RETURN_IF_ERROR(Reduce(deferred_, &none));
    MUSTER_RETURN_IF_ERROR(Reduce(-1, &control));
  } else {
    MUSTER_RETURN_IF_ERROR(Reduce(deferred_, &control));
  }
  Enter(Phase::kUpdate);
  MUSTER_RETURN_IF_ERROR(ReadControl(control, result));
  // From here on every replica commits.
  committed_ = true;
  if (deferred_ >= 0) MUSTER_RETURN_IF_ERROR(Update(deferred_));
  result->skipped = skipped_;
  scaler_.Advance(skipped_);
  if (!replica_->optimizers().empty())
    result->learning_rate = replica_->optimizers()[0].schedule->At(plan_.steps_done);
  return CatchProgramErrors("on_commit", [&] {
    at::NoGradGuard no_grad;
    for (const auto& action : on_commit_) action();
  });
}

void StepImpl::RollBack() {
  for (NamedOptimizer& optimizer : replica_->optimizers()) optimizer.buckets->Cancel();
  // The state was saved at the first minimize(), after the forward pass had moved the buffers;
  // theirs is the older copy and goes last.
  if (state_saved_) CopyBack(state_undo_, replica_->state());
  if (!buffers_.empty()) CopyBack(buffers_undo_, buffers_);
  state_saved_ = false;
}

// ---- Step and StepRunner forward.

int64_t Step::number() const { return impl_->plan_.steps_done + 1; }
int64_t Step::epoch() const { return impl_->plan_.epoch; }
int Step::replica() const { return impl_->options_.replica; }
int Step::num_replicas() const { return impl_->options_.num_replicas; }
at::Device Step::device() const { return impl_->replica_->device(); }
at::Generator Step::generator() { return impl_->Generator(); }
void Step::minimize(OptimizerHandle optimizer, const at::Tensor& per_example_loss) {
  impl_->Minimize(optimizer, per_example_loss);
}
void Step::add_loss(const at::Tensor& per_example_loss) { impl_->AddLoss(per_example_loss); }
void Step::regularize(const at::Tensor& scalar_loss) { impl_->Regularize(scalar_loss); }
void Step::report(const std::string& name, const at::Tensor& value) { impl_->Report(name, value); }
void Step::update(MetricHandle metric, const at::Tensor& output, const at::Tensor& target) {
  impl_->UpdateMetric(metric, output, target);
}
void Step::on_commit(std::function<void()> action) {
  impl_->on_commit_.push_back(std::move(action));
}

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
