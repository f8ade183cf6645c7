#include "common/train/loop/loop.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "common/flight/spans.h"
#include "common/train/evaluation.h"
#include "common/train/loop/loop_save.h"
#include "common/train/replica/devices/precision.h"
#include "common/train/replica/replica_values.h"
#include "common/train/state/snapshot.h"
#include "common/train/step/losses/loss_graph.h"
#include "common/train/step/step_buffers.h"

namespace muster {

namespace {

StepRunnerOptions RunnerOptions(const LoopReplica& loop) {
  StepRunnerOptions options;
  options.replica = loop.global_index();
  options.num_replicas = loop.context.num_replicas;
  options.first_local = loop.first_local();
  options.local_replicas = loop.context.local_replicas;
  options.for_servers = loop.context.for_servers;
  options.global_batch_size = loop.state.global_batch_size;
  options.on_phase = [&loop](Phase phase) { loop.Enter(phase); };
  return options;
}

// Begins the sums over an epoch.
void ResetEpoch(LoopState* state) {
  state->epoch_loss_sum = 0;
  state->epoch_examples = 0;
  std::fill(state->epoch_metric_sums.begin(), state->epoch_metric_sums.end(), 0.0);
  state->extras.epoch_values.clear();
}

// Adds a committed step to the counters and sums.
void AddStep(const StepResult& result, LoopState* state) {
  // Resets the sums at the start of the next epoch, because a restart reports an epoch until its
  // passes are complete.
  if (state->epoch_begins()) ResetEpoch(state);
  ++state->step;
  state->examples += result.examples;
  state->last_loss = result.loss;
  state->last_learning_rate = result.learning_rate;
  state->last_examples = result.examples;
  state->last_values = result.values;
  state->last_passes.clear();
  state->epoch_loss_sum += result.loss * static_cast<double>(result.examples);
  state->epoch_examples += result.examples;
  if (result.loss_scale > 0) state->extras.skipped.Add(result.skipped);
  for (size_t i = 0; i < state->epoch_metric_sums.size(); ++i)
    state->epoch_metric_sums[i] += result.metric_increments[i];
  for (const auto& [name, value] : result.values) {
    const auto weights = result.value_weights.find(name);
    state->extras.epoch_values[name].Add(value, weights == result.value_weights.end()
                                                    ? static_cast<double>(result.examples)
                                                    : weights->second);
  }
}

// Returns true if a test pass follows the last step, provided that the program has a test dataset.
bool IsTestStep(const LoopReplica& loop) {
  const int64_t every = loop.replica->test_every();
  return loop.IsFinished() || (every > 0 && loop.state.epoch_begins() && loop.state.step > 0 &&
                               loop.state.epoch % every == 0);
}

// Returns a ProgramError if the replicas hold different parameters or kSame buffers, or if the
// program has registered some after build(). Called by all replicas.
absl::Status CheckReplicasEqual(const LoopReplica& loop) {
  MUSTER_RETURN_IF_ERROR(loop.replica->CheckNothingRegisteredLate());
  MUSTER_RETURN_IF_ERROR(CheckSameBuffers(*loop.replica, loop.communicator));
  const int64_t digest = loop.replica->Digest();
  const at::Tensor both = at::empty({2}, at::kLong);
  both.data_ptr<int64_t>()[0] = digest;
  both.data_ptr<int64_t>()[1] = ~digest;
  at::Tensor on_device = both.to(loop.replica->device());
  MUSTER_RETURN_IF_ERROR(loop.communicator->AllReduce(BufferOf(on_device), ReduceOp::kMax)->Wait());
  const at::Tensor host = on_device.to(at::kCPU);
  // max(d) and max(~d) are complements only if all d are equal.
  if (host.const_data_ptr<int64_t>()[0] == ~host.const_data_ptr<int64_t>()[1])
    return absl::OkStatus();
  return ProgramError(
      fmt::format("replicas hold different parameters after step {}: the program "
                  "changes them outside of minimize() and on_commit(), "
                  "or computes differently on some replica",
                  loop.state.step));
}

// Returns an error if a batch of the run will leave a replica with a single example, which the
// program's batch normalisation cannot take. Called after the first step of a generation, so that
// the error occurs before the end of an epoch.
absl::Status CheckBatchNorm(const LoopReplica& loop, const BatchNormWatch& watch) {
  if (!watch.needs_several_examples()) return absl::OkStatus();
  // If the size of the data is unknown, so is the last batch. Only full batches are checked then.
  const int64_t batch_size = loop.state.global_batch_size;
  const data::Sampler sampler =
      loop.data.sampler ? *loop.data.sampler : data::Sampler(batch_size, batch_size, false);
  const Job& job = loop.context.job;
  const std::string batch =
      BatchWithSingleExample(sampler, TotalSteps(job, sampler.batches_per_epoch()),
                             loop.context.num_replicas, job.accumulate_steps);
  return batch.empty() ? absl::OkStatus() : SingleExampleError(batch);
}

}  // namespace

LoopImpl::LoopImpl(const LoopContext& context, Replica* replica,
                   collective::Communicator* communicator, int local_index, const TrainData& data,
                   LoopState* state)
    : loop_{context, replica, communicator, local_index, data, *state},
      context_(loop_.context),
      replica_(replica),
      communicator_(communicator),
      state_(*state),
      runner_(StepRunner::Make(replica, communicator, context.job, RunnerOptions(loop_))),
      reports_(loop_),
      callbacks_(loop_) {}

LoopImpl::~LoopImpl() = default;

absl::Status LoopImpl::Run() {
  MUSTER_RETURN_IF_ERROR(CatchProgramErrors("taking over the state", [&] { TakeOverState(); }));
  input_.emplace(loop_);
  reports_.Start();
  MUSTER_RETURN_IF_ERROR(CatchProgramErrors("beginning", [&] { callbacks_.Begin(); }));
  // The previous generation may have ended before this state was saved: a process may have been
  // lost after the end of training or a validation, or a replica may have been lost within Save.
  // This saves the state if it is due. With callbacks, SaveEnd saves the final state instead.
  if (callbacks_.any() ? state_.step > 0 && !IsFinished() : IsFinished() || state_.step > 0) {
    const bool best = state_.epoch_begins() && context_.job.checkpoint.best_of_training;
    const bool asked = best || IsFinished() || HasValidated();
    const bool again = asked && !callbacks_.epoch_end_pending() && state_.saved_step != state_.step;
    MUSTER_RETURN_IF_ERROR(CatchProgramErrors("saving", [&] { Save(again, best); }));
  }
  // If a member is lost during a stop, the remaining members form a generation only to stop. They
  // make no further step, because sums of fewer replicas round differently than in a run without a
  // loss.
  if (state_.stop_asked && state_.step > 0 && !IsFinished()) {
    stop_ = true;
    MUSTER_RETURN_IF_ERROR(CatchProgramErrors("saving", [&] { Save(); }));
    return Stopped();
  }
  reports_.RestartClocks();
  Loop loop(this);
  absl::Status ran = CatchProgramErrors("run", [&] { replica_->program().run(loop); });
  // The job ended between two steps over one batch, and RunStep threw this error.
  if (absl::IsCancelled(ran) && IsFinished()) ran = absl::OkStatus();
  if (ran.ok() && !stop_ && !IsFinished())
    ran = CatchProgramErrors("ending the run", [&] { EndRun(); });
  if (ran.ok() && !stop_)
    ran = CatchProgramErrors("ending the run", [&] {
      Settle();
      SaveEnd();
    });
  const bool stopped = ran.ok() || absl::IsCancelled(ran) ? stop_ : false;
  if (!ran.ok() && !stopped) return ran;
  return stopped ? Stopped() : absl::OkStatus();
}

absl::Status LoopImpl::Stopped() const {
  return Preempted(fmt::format("stopped on request after step {}", state_.step));
}

void LoopImpl::EndRun() {
  ThrowIfError(AgreeOn(communicator_, replica_->device(),
                       fmt::format("returned from run() after step {}", state_.step),
                       "every replica must make the same calls in the same order"));
  if (loop_.reporter())
    LogInfo("run() returned after step {}{}: training is finished", state_.step,
            context_.job.max_steps || loop_.data.steps_per_epoch > 0
                ? fmt::format(" of {}", TotalSteps(context_.job, loop_.data.steps_per_epoch))
                : "");
  Finish();
}

// ---- State

void LoopImpl::TakeOverState() {
  TransferOptions options;
  // Each call is a separate point for --fault.
  options.moment = [this] { loop_.Enter(Phase::kStarting); };
  state_.stop_asked = context_.membership->StopRequested();
  BroadcastState(replica_, communicator_, context_.owner_replica, &state_, options);
  runner_->set_scaler_state(state_.loss_scaler);
  runner_->Begin();
  for (NamedOptimizer& optimizer : replica_->optimizers()) optimizer.rule->Begin();
  if (LeaveShorterEpoch(loop_.data, &state_)) ResetEpoch(&state_);
  // The job may have become longer. Its former end is then in the middle of the job.
  state_.test_due = state_.test_due && IsTestStep(loop_);
  if (!IsFinished() && !callbacks_.stopping() && !state_.epoch_begins())
    state_.validation_due = false;
  state_.validation_due = state_.validation_due && loop_.Has(Split::kValidation);
  state_.test_due = state_.test_due && loop_.Has(Split::kTest);
  callbacks_.TakeOver();
}

void LoopImpl::Save(bool again, bool best) {
  SaveIfWanted(loop_, {again, best, stop_, callbacks_.TakeSaveRequest()}, reports_);
}

// ---- Steps

bool LoopImpl::Next(data::Batch* batch, int64_t steps) {
  if (steps < 1)
    throw StatusError(
        ProgramError(fmt::format("next(&batch, {}): a batch is for at least 1 step", steps)));
  Settle();
  SaveEnd();
  if (stop_ || IsFinished()) return false;
  input_->Next(steps);
  *batch = input_->batch().batch;
  return true;
}

bool LoopImpl::NextOf(DatasetHandle dataset, data::Batch* batch) {
  return input_->NextOf(dataset, batch);
}

int64_t LoopImpl::steps_left() const { return stop_ || IsFinished() ? 0 : input_->steps_left(); }

StepOutcome LoopImpl::RunStep(const LoopBody& body) {
  if (!input_->has_batch()) throw StatusError(input_->NoBatchError());
  if (callbacks_.stopping()) Settle();
  if (stop_ || IsFinished()) throw StatusError(Preempted("the job is over"));
  const FedBatch& batch = input_->batch();
  EnterSpanStep(state_.step + 1);
  const Span span("step");
  callbacks_.BeginStep();
  StepPlan plan;
  plan.steps_done = state_.step;
  plan.epoch = state_.epoch;
  plan.global_examples = batch.global_examples;
  plan.summary = reports_.observed() && (state_.step + 1) % context_.job.summary.every_steps == 0;
  std::optional<LossGraph> graph;
  if (reports_.observed() && state_.step == 0) graph.emplace(NamedParameters(*replica_));
  plan.stop_requested = loop_.first_local() && context_.membership->StopRequested();
  plan.input_seconds = input_->TakeWaitSeconds();
  std::optional<BatchNormWatch> watch;
  if (!watched_) watch.emplace();
  Nested results;
  auto result = runner_->Run(
      plan, batch.batch, batch.local_examples,
      [&](Step& step, const data::Batch& part) { results = Detached(body(step, part)); });
  if (!result.ok()) throw StatusError(NameLeftOut(result.status(), batch.left_out.count));
  watched_ = true;
  if (watch) ThrowIfError(CheckBatchNorm(loop_, *watch));
  Commit(*result);
  if (graph) reports_.Graph(graph->Take());
  reports_.RestartStepClock();
  return OutcomeOf(*std::move(result), state_.step, std::move(results));
}

// Accounts for a committed step, and does what is due after it.
void LoopImpl::Commit(const StepResult& result) {
  AddStep(result, &state_);
  reports_.Measure(result, input_->batch().local_examples);
  input_->StepDone();
  state_.loss_scaler = runner_->scaler_state();
  state_.validation_due = state_.test_due = false;
  stop_ = stop_ || result.stop;
  callbacks_.AverageWeights();
  reports_.Step(result, input_->batch());
  reports_.LeftOut(Split::kTrain, input_->TakeLeftOut());
  if (result.skipped)
    ThrowIfError(CheckLossScale(result.loss_scale, state_.extras.skipped.in_a_row, state_.step));
  const bool ended = state_.epoch_begins() || IsFinished();
  if (ended) EndEpoch();
  if (callbacks_.any()) AfterStep();
  // The final checkpoint must include what callbacks do at the end of training. SaveEnd saves it.
  if (!callbacks_.any() || !(IsFinished() || callbacks_.stopping()) || stop_) Save();
  // This is last, because it fails if a peer is lost, and the step is already committed.
  if (ended) ThrowIfError(CheckReplicasEqual(loop_));
}

void LoopImpl::Finish() {
  if (IsFinished()) return;
  ThrowIfError(AgreeOn(communicator_, replica_->device(),
                       fmt::format("finishes after step {}", state_.step),
                       "every replica must make the same calls in the same order"));
  state_.extras.finished = true;
  stop_ = false;  // The requested stop has taken effect.
  reports_.Finish();
  if (state_.step == 0) return;  // Nothing to save.
  // If this state is already saved, result.json says that it is final.
  if (!state_.epoch_begins()) EndEpoch();
  if (callbacks_.any()) {
    Settle();
    return SaveEnd();
  }
  Save(/*again=*/state_.saved_step != state_.step);
  ThrowIfError(CheckReplicasEqual(loop_));
}

// Ends an epoch, or the job in the middle of one.
void LoopImpl::EndEpoch() {
  // Fails only at the end of an epoch: before, undamaged examples may still follow.
  if (state_.epoch_begins() && state_.epoch_examples == 0 &&
      PipelineOptionsOf(context_.job).skip_damaged)
    throw StatusError(DataError(fmt::format(
        "epoch {} had no example to train on: all of its examples are damaged, and on_error "
        "\"skip\" leaves them out",
        state_.last_epoch() + 1)));
  reports_.Epoch();
  state_.validation_due = fitting_ && loop_.Has(Split::kValidation);
  state_.test_due = fitting_ && IsTestStep(loop_) && loop_.Has(Split::kTest);
}

void LoopImpl::Fit() {
  fitting_ = true;
  Program& program = replica_->program();
  const LoopBody body = [&program](Step& step, const data::Batch& batch) -> Nested {
    program.train_step(step, batch);
    return {};
  };
  RunDuePasses();
  data::Batch batch;
  while (Next(&batch, 1)) {
    RunStep(body);
    RunDuePasses();
  }
}

// ---- The end of steps, epochs and training

void LoopImpl::AfterStep() {
  callbacks_.EndStep();
  // A stop that a callback requests in the middle of an epoch ends the epoch.
  if (callbacks_.stopping() && !state_.epoch_begins() && !IsFinished()) EndEpoch();
}

void LoopImpl::Settle() {
  if (!callbacks_.any() || stop_ || state_.step == 0) return;
  // If a replica was lost here, the hook of this step may not have run.
  if (callbacks_.step_end_pending()) AfterStep();
  // The validation pass must come first, because the epoch's metrics include its metrics.
  if (fitting_ && state_.validation_due) return;
  bool asks_for_best = false;
  if (callbacks_.epoch_end_pending()) {
    callbacks_.EndEpoch();
    // If a callback has restored weights, the metrics do not belong to them.
    asks_for_best =
        !callbacks_.has_restored() && (context_.job.checkpoint.best_of_training || HasValidated());
  }
  if (callbacks_.stopping() && !state_.extras.finished) {
    state_.extras.finished = true;
    state_.test_due = fitting_ && loop_.Has(Split::kTest);
    if (loop_.reporter())
      LogInfo("training stops after step {} (epoch {}): {}", state_.step, state_.last_epoch() + 1,
              callbacks_.why_stopping());
    reports_.Finish();
  }
  if (callbacks_.train_end_pending()) callbacks_.EndTraining();
  if (!IsFinished() && (callbacks_.save_requested() || asks_for_best))
    Save(callbacks_.save_requested() || state_.saved_step != state_.step, asks_for_best);
}

void LoopImpl::SaveEnd() {
  if (!callbacks_.any() || stop_ || end_saved_ || state_.step == 0) return;
  if (!IsFinished() || callbacks_.train_end_pending() ||
      (fitting_ && (state_.validation_due || state_.test_due)))
    return;
  end_saved_ = true;
  // A lost member may have prevented an earlier save of this state. The saving process knows from
  // end_saved_step whether it has saved.
  Save(/*again=*/state_.end_saved_step != state_.step);
  ThrowIfError(CheckReplicasEqual(loop_));
}

// ---- Passes

void LoopImpl::RunDuePasses() {
  if (state_.validation_due && Pass(Split::kValidation)) state_.validation_due = false;
  Settle();
  if (state_.test_due && Pass(Split::kTest)) state_.test_due = false;
  SaveEnd();
}

std::map<std::string, double> LoopImpl::Evaluate(Split split) {
  if (!loop_.Has(split))
    throw StatusError(
        ProgramError(fmt::format("the program declares no dataset for {}", SplitName(split))));
  if (split == Split::kTrain && loop_.data.auto_shard == data::AutoShard::kFile)
    throw StatusError(ConfigurationError(
        "evaluate(train) was called with data.auto_shard \"file\", by which no replica has all "
        "files: evaluate another split, or use \"data\""));
  auto metrics = Pass(split);
  if (!metrics) throw StatusError(Preempted("stopped on request"));
  return *std::move(metrics);
}

std::optional<std::map<std::string, double>> LoopImpl::Pass(Split split) {
  if (stop_) return std::nullopt;
  const Span span("evaluate");
  const MonotonicTime start = Clock::now();
  loop_.Enter(Phase::kEvaluate);
  PassOptions options;
  options.split = split;
  options.dataset = context_.datasets.at(split);
  options.batch_size = PassBatchSize(context_.job, state_.global_batch_size, context_.num_replicas,
                                     context_.declared_replicas);
  options.replicas_on_host = context_.replicas_on_host;
  options.damage_log = context_.damage_log;
  options.summary = reports_.observed();
  options.stop = [this] { return loop_.first_local() && context_.membership->StopRequested(); };
  options.progress = reports_.PassProgress(split);
  callbacks_.BeginPass(split);
  auto pass = RunPass(context_.job, replica_, communicator_, options);
  if (!pass.ok()) throw StatusError(pass.status());
  if (pass->stopped || !callbacks_.PassOfAverage(options, &pass->metrics)) {
    stop_ = true;
    Save();
    return std::nullopt;
  }
  // Remaining processes keep these metrics. If the chief is lost before it has reported this pass,
  // the next chief reports it.
  if (split != Split::kTrain) state_.last_passes[SplitName(split)] = pass->metrics;
  // A separate point for --fault.
  loop_.Enter(Phase::kEvaluate);
  reports_.Pass(split, *pass, start);
  callbacks_.EndPass(split, pass->metrics);
  // The best state so far is saved regardless of the intervals. At the end of an epoch, it is saved
  // after the hooks have run with these metrics.
  if (split == Split::kValidation && state_.step > 0) {
    state_.validation_due = false;
    if (!callbacks_.epoch_end_pending()) Save(state_.saved_step != state_.step);
  }
  loop_.Enter(Phase::kForward);
  reports_.RestartClocks();
  return std::move(pass->metrics);
}

}  // namespace muster
