#include "common/train/loop.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>

#include "common/base/logging.h"
#include "common/train/evaluation.h"

namespace muster {

absl::Status CouldNotSave(int64_t step, const absl::Status& why) {
  return StatusFor(
      ExitCode::kRetryable,
      fmt::format("the state after step {} could not be saved: {}", step, Message(why)));
}

namespace {

StepRunnerOptions RunnerOptions(const LoopContext& context, int local_index,
                                int64_t global_batch_size, std::function<void(Phase)> on_phase) {
  StepRunnerOptions options;
  options.replica = context.first_replica + local_index;
  options.num_replicas = context.num_replicas;
  options.first_local = local_index == 0;
  options.global_batch_size = global_batch_size;
  options.on_phase = std::move(on_phase);
  return options;
}

}  // namespace

data::Sampler TrainSampler(const Job& job, const Replica& replica, int64_t examples,
                           int64_t global_batch_size) {
  const bool drop =
      job.drop_remainder.value_or(replica.datasets().at(Split::kTrain).options.drop_remainder);
  return data::Sampler(examples, global_batch_size, drop, job.steps_per_epoch.value_or(0));
}

int64_t TotalSteps(const Job& job, int64_t steps_per_epoch) {
  if (!job.epochs && job.max_steps) return *job.max_steps;
  const int64_t by_epochs = job.epochs.value_or(1) * steps_per_epoch;
  return job.max_steps ? std::min(*job.max_steps, by_epochs) : by_epochs;
}

LoopImpl::LoopImpl(const LoopContext& context, Replica* replica, Communicator* communicator,
                   int local_index, LoopState* state)
    : context_(context),
      replica_(replica),
      communicator_(communicator),
      local_index_(local_index),
      global_replica_(context.first_replica + local_index),
      state_(*state),
      runner_(replica, communicator, context.job,
              RunnerOptions(context, local_index, state->global_batch_size,
                            [this](Phase phase) { Enter(phase); })),
      sampler_(TrainSampler(context.job, *replica, context.datasets.at(Split::kTrain)->size(),
                            state->global_batch_size)) {}

LoopImpl::~LoopImpl() = default;

absl::Status LoopImpl::Run() {
  MUSTER_RETURN_IF_ERROR(CatchProgramErrors("taking over the state", [&] { TakeOverState(); }));
  data::PipelineOptions options;
  options.seed = context_.job.seed;
  pipeline_ = data::Pipeline::Make(context_.datasets.at(Split::kTrain), sampler_, state_.position,
                                   global_replica_, 1, context_.num_replicas, options);
  if (reporter()) ReportStart();
  // Whoever came to the end may have been lost before it was saved.
  if (Through() && state_.saved_step != state_.steps) Save();
  epoch_start_ = step_start_ = Clock::now();
  replica_->SetTraining(true);
  Loop loop(this);
  const absl::Status ran = CatchProgramErrors("run", [&] { replica_->program().run(loop); });
  const bool stopped = ran.ok() || absl::IsCancelled(ran) ? stop_ : false;
  if (!ran.ok() && !stopped) return ran;
  if (stopped) return Preempted(fmt::format("stopped on request after step {}", state_.steps));
  return absl::OkStatus();
}

// ---- State

void LoopImpl::TakeOverState() {
  BroadcastState(replica_, communicator_, context_.owner_replica, &state_);
  runner_.set_scaler_state(state_.loss_scaler);
  for (NamedOptimizer& optimizer : replica_->optimizers()) optimizer.rule->Begin();
  if (state_.position.offset >= sampler_.examples_per_epoch()) {
    // The job's epochs have become shorter since the state was saved.
    state_.position = {state_.position.epoch + 1, 0};
    ResetEpoch();
  }
  // The job may also have become longer: what was its end is none any more.
  if (!Through()) {
    state_.test_due = false;
    if (state_.position.offset != 0) state_.validation_due = false;
  }
  state_.validation_due = state_.validation_due && Has(Split::kValidation);
  state_.test_due = state_.test_due && Has(Split::kTest);
}

void LoopImpl::ResetEpoch() {
  state_.epoch_loss_sum = 0;
  state_.epoch_examples = 0;
  std::fill(state_.epoch_metric_sums.begin(), state_.epoch_metric_sums.end(), 0.0);
}

void LoopImpl::Save() {
  if (!reporter() || context_.checkpoints == nullptr) return;
  SaveMoment moment;
  moment.step = state_.steps;
  moment.epoch = last_epoch();
  moment.epoch_end = state_.position.offset == 0;
  moment.last = Through();
  moment.stopping = stop_;
  const bool must = moment.last || moment.stopping;
  if (must) Enter(Phase::kSave);  // Wanted may wait for the save before
  if (!context_.checkpoints->Wanted(moment)) return;
  Enter(Phase::kSave);
  for (Observer* observer : context_.observers) observer->OnSave(state_.steps);
  auto snapshot = context_.snapshots->Take(*replica_, state_);
  if (snapshot.ok()) {
    context_.checkpoints->Save(*std::move(snapshot));
    state_.saved_step = state_.steps;
  } else if (must) {
    throw StatusError(CouldNotSave(state_.steps, snapshot.status()));
  } else {
    LogWarning("{}; training goes on", Message(CouldNotSave(state_.steps, snapshot.status())));
  }
  Enter(Phase::kForward);
}

void LoopImpl::CheckReplicasEqual() {
  const int64_t digest = replica_->Digest();
  const at::Tensor both = at::empty({2}, at::kLong);
  both.data_ptr<int64_t>()[0] = digest;
  both.data_ptr<int64_t>()[1] = ~digest;
  at::Tensor on_device = both.to(replica_->device());
  ThrowIfError(communicator_->AllReduce(BufferOf(on_device), ReduceOp::kMax)->Wait());
  const at::Tensor host = on_device.to(at::kCPU);
  // max(d) and max(~d) are complements only where all d are equal.
  if (host.const_data_ptr<int64_t>()[0] != ~host.const_data_ptr<int64_t>()[1]) {
    throw StatusError(
        ProgramError(fmt::format("replicas hold different parameters after step {}: the program "
                                 "changes them outside of minimize() and on_commit(), "
                                 "or computes differently on some replica",
                                 state_.steps)));
  }
}

// ---- Steps

bool LoopImpl::Through() const {
  const Job& job = context_.job;
  if (job.max_steps && state_.steps >= *job.max_steps) return true;
  if (!job.epochs && job.max_steps) return false;
  return state_.position.epoch >= job.epochs.value_or(1);
}

bool LoopImpl::Next(data::Batch* batch) {
  if (stop_ || Through()) return false;
  if (!have_batch_) {
    Enter(Phase::kData);
    const MonotonicTime start = Clock::now();
    auto loaded = pipeline_->Next(0);
    if (!loaded.ok()) throw StatusError(loaded.status());
    loaded_ = *std::move(loaded);
    for (at::Tensor& t : loaded_.batch) t = t.to(replica_->device(), /*non_blocking=*/true);
    input_seconds_ = Seconds(Clock::now() - start);
    have_batch_ = true;
  }
  *batch = loaded_.batch;
  return true;
}

void LoopImpl::RunStep(const StepRunner::Body& body) {
  if (!have_batch_)
    throw StatusError(ProgramError("step was called without a batch: call next() first"));
  have_batch_ = false;
  StepPlan plan;
  plan.steps_done = state_.steps;
  plan.epoch = state_.position.epoch;
  plan.global_examples = loaded_.global.size();
  plan.summary = reporter() && !context_.observers.empty() &&
                 (state_.steps + 1) % context_.job.summary.every_steps == 0;
  plan.stop_requested = first_local() && context_.membership->StopRequested();
  auto result = runner_.Run(plan, loaded_.batch, loaded_.local.size(), body);
  if (!result.ok()) throw StatusError(result.status());
  Commit(*result);
  step_start_ = Clock::now();
}

// Everything here is computed, not exchanged.
void LoopImpl::Commit(const StepResult& result) {
  // Not at the end of the epoch before: until its passes are through, a restart still tells of it.
  if (state_.position.offset == 0) ResetEpoch();
  ++state_.steps;
  state_.examples += result.examples;
  state_.last_loss = result.loss;
  state_.last_learning_rate = result.learning_rate;
  state_.last_examples = result.examples;
  state_.last_values = result.values;
  state_.last_passes.clear();
  state_.epoch_loss_sum += result.loss * static_cast<double>(result.examples);
  state_.epoch_examples += result.examples;
  for (size_t i = 0; i < state_.epoch_metric_sums.size(); ++i)
    state_.epoch_metric_sums[i] += result.metric_increments[i];
  state_.position = sampler_.Next(state_.position);
  state_.loss_scaler = runner_.scaler_state();
  state_.validation_due = state_.test_due = false;
  stop_ = stop_ || result.stop;
  if (reporter()) ReportStep(result);
  const bool ended = state_.position.offset == 0 || Through();
  if (ended) EndEpoch();
  Save();
  // Last, for it may fail with a peer that is lost, when the step has long been committed.
  if (ended) CheckReplicasEqual();
}

// Of an epoch, or of the job in the middle of one.
void LoopImpl::EndEpoch() {
  if (reporter()) {
    ReportEpoch(Split::kTrain, last_epoch(), state_.epoch_examples,
                Seconds(Clock::now() - epoch_start_), TrainMetrics());
    ReportParameters();
  }
  state_.validation_due = fitting_ && Has(Split::kValidation);
  state_.test_due = fitting_ && Through() && Has(Split::kTest);
  epoch_start_ = Clock::now();
}

void LoopImpl::Fit() {
  fitting_ = true;
  Program& program = replica_->program();
  const StepRunner::Body body = [&program](Step& step, const data::Batch& batch) {
    program.train_step(step, batch);
  };
  RunDuePasses();
  data::Batch batch;
  while (Next(&batch)) {
    RunStep(body);
    RunDuePasses();
  }
}

// ---- Passes

void LoopImpl::RunDuePasses() {
  if (state_.validation_due && Pass(Split::kValidation)) state_.validation_due = false;
  if (state_.test_due && Pass(Split::kTest)) state_.test_due = false;
}

std::map<std::string, double> LoopImpl::Evaluate(Split split) {
  if (!Has(split))
    throw StatusError(
        ProgramError(fmt::format("the program declares no dataset for {}", SplitName(split))));
  auto metrics = Pass(split);
  if (!metrics) throw StatusError(Preempted("stopped on request"));
  return *std::move(metrics);
}

std::optional<std::map<std::string, double>> LoopImpl::Pass(Split split) {
  if (stop_) return std::nullopt;
  const MonotonicTime start = Clock::now();
  Enter(Phase::kEvaluate);
  PassOptions options;
  options.split = split;
  options.dataset = context_.datasets.at(split);
  options.batch_size = state_.global_batch_size;
  options.summary = reporter() && !context_.observers.empty();
  options.stop = [this] { return first_local() && context_.membership->StopRequested(); };
  if (reporter()) {
    options.progress = [this, split](int64_t done, int64_t total) {
      for (Observer* observer : context_.observers)
        observer->OnEvaluateProgress(SplitName(split), done, total);
    };
  }
  auto pass = RunPass(context_.job, replica_, communicator_, options);
  if (!pass.ok()) throw StatusError(pass.status());
  if (pass->stopped) {
    stop_ = true;
    Save();
    return std::nullopt;
  }
  // Whoever lives on holds it: a chief that is lost before it has told of this pass leaves that to
  // its successor.
  if (split != Split::kTrain) state_.last_passes[SplitName(split)] = pass->metrics;
  Enter(Phase::kEvaluate);  // the moment in between is one of its own, for --fault
  if (reporter()) {
    ReportSummary(split, pass->summary);
    ReportEpoch(split, last_epoch(), pass->examples, Seconds(Clock::now() - start), pass->metrics);
  }
  Enter(Phase::kForward);
  epoch_start_ = step_start_ = Clock::now();
  return std::move(pass->metrics);
}

// ---- Values across replicas

std::vector<double> LoopImpl::SumOverReplicas(const std::vector<double>& values) {
  at::Tensor sums = at::tensor(values, at::kDouble).to(replica_->device());
  ThrowIfError(communicator_->AllReduce(BufferOf(sums), ReduceOp::kSum)->Wait());
  const at::Tensor host = sums.to(at::kCPU);
  return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel()};
}

at::Tensor LoopImpl::Reduce(const at::Tensor& value, ReduceOp op) {
  at::Tensor reduced = value.detach().clone(at::MemoryFormat::Contiguous).to(replica_->device());
  ThrowIfError(communicator_->AllReduce(BufferOf(reduced), op)->Wait());
  return reduced;
}

at::Tensor LoopImpl::Gather(const at::Tensor& value) {
  at::Tensor part = value.detach().dim() == 0 ? value.detach().reshape({1}) : value.detach();
  part = part.contiguous().to(replica_->device());
  std::vector<double> sizes(context_.num_replicas, 0.0);
  sizes[global_replica_] = static_cast<double>(part.size(0));
  sizes = SumOverReplicas(sizes);
  // All-gather wants equal parts: pad to the longest.
  const int64_t longest = static_cast<int64_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<int64_t> shape = part.sizes().vec();
  shape[0] = longest;
  at::Tensor padded = at::zeros(shape, part.options());
  padded.narrow(0, 0, part.size(0)).copy_(part);
  shape.insert(shape.begin(), context_.num_replicas);
  at::Tensor all = at::empty(shape, part.options());
  ThrowIfError(communicator_->AllGather(BufferOf(padded), BufferOf(all))->Wait());
  std::vector<at::Tensor> parts;
  for (int r = 0; r < context_.num_replicas; ++r)
    parts.push_back(all[r].narrow(0, 0, static_cast<int64_t>(sizes[r])));
  return at::cat(parts);
}

std::vector<at::Tensor> LoopImpl::LocalResults(const at::Tensor& value) {
  auto values = context_.exchange->Exchange(local_index_, value.detach());
  if (!values.ok()) throw StatusError(values.status());
  return *std::move(values);
}

// ---- Loop forwards.

void Loop::fit() { backend_->Fit(); }
bool Loop::next(data::Batch* batch) { return backend_->Next(batch); }
void Loop::step(const std::function<void(Step&, const data::Batch&)>& body) {
  backend_->RunStep(body);
}
std::map<std::string, double> Loop::evaluate(Split split) { return backend_->Evaluate(split); }
at::Tensor Loop::reduce_sum(const at::Tensor& value) {
  return backend_->Reduce(value, ReduceOp::kSum);
}
at::Tensor Loop::reduce_mean(const at::Tensor& value) {
  return backend_->Reduce(value, ReduceOp::kMean);
}
at::Tensor Loop::gather(const at::Tensor& value) { return backend_->Gather(value); }
std::vector<at::Tensor> Loop::local_results(const at::Tensor& value) {
  return backend_->LocalResults(value);
}
int64_t Loop::steps() const { return backend_->steps(); }
int64_t Loop::epoch() const { return backend_->epoch(); }
bool Loop::epoch_begins() const { return backend_->epoch_begins(); }

}  // namespace muster
