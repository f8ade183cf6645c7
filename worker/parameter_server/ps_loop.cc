#include "worker/parameter_server/ps_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/logging.h"
#include "common/collective/group/formation.h"
#include "common/data/pipeline.h"
#include "common/data/single_thread.h"
#include "common/flight/spans.h"
#include "common/telemetry/task_meter.h"
#include "common/train/evaluation.h"
#include "common/train/input/loop_data.h"
#include "common/train/replica/devices/precision.h"
#include "common/train/replica/integer_buffers.h"
#include "common/train/shown.h"

namespace muster::worker {
namespace {

using push_pull::IntegerBuffers;

proto::LeftOut LeftOutOf(const DamagedExamples::Report& left_out) {
  proto::LeftOut message;
  message.set_examples(left_out.count);
  message.mutable_names()->Assign(left_out.names.begin(), left_out.names.end());
  return message;
}

struct LoadedLease {
  data::PresentExamples examples;
  std::shared_ptr<PrefetchedRows> rows;
};

}  // namespace

absl::StatusOr<std::shared_ptr<void>> LoadLease(const std::map<Split, data::DatasetPtr>& datasets,
                                                const data::PipelineOptions& options,
                                                const proto::Lease& lease, Replica* replica,
                                                ParameterExchange* exchange) {
  const Span span("load batch");
  thread_local const bool one_thread = (data::UseOneIntraOpThread(), true);
  (void)one_thread;
  const bool pass = lease.has_evaluation();
  const Split split = pass ? static_cast<Split>(lease.evaluation().split()) : Split::kTrain;
  const auto found = datasets.find(split);
  if (found == datasets.end() || lease.begin() < 0 || lease.end() > found->second->size() ||
      lease.begin() > lease.end()) {
    return ConfigurationError(
        fmt::format("the chief leased examples {} to {} of the {} dataset, which has {} here: do "
                    "all tasks see the same data?",
                    lease.begin(), lease.end(), SplitName(split),
                    found == datasets.end() ? 0 : found->second->size()));
  }
  const data::Slice slice{lease.begin(), lease.end()};
  const data::Context context{options.seed, lease.training().epoch()};
  auto loaded = std::make_shared<LoadedLease>();
  if (options.skip_damaged) {
    MUSTER_ASSIGN_OR_RETURN(loaded->examples,
                            data::LoadPresentExamples(*found->second, slice, context));
  } else {
    MUSTER_ASSIGN_OR_RETURN(loaded->examples.batch,
                            data::LoadExamples(*found->second, slice, context));
    loaded->examples.count = slice.size();
  }
  if (!pass && !lease.training().wait()) {
    MUSTER_ASSIGN_OR_RETURN(loaded->rows, exchange->Prefetch(replica, loaded->examples.batch));
  }
  return loaded;
}

PsLoop::PsLoop(const PsLoopContext& context)
    : context_(context),
      alone_(
          std::move(collective::MakeThreadCommunicators(1, context.job.timeouts.collective)[0])) {
  // While a server is missing, the phase is kReduce, because this worker is not at fault.
  context_.exchange->set_on_wait([this](bool waits) {
    if (phase_ != Phase::kReduce) Report(waits ? Phase::kReduce : phase_);
  });
}

absl::Status PsLoop::Run() {
  Loop loop(this);
  MUSTER_RETURN_IF_ERROR(CatchProgramErrors("run", [&] { context_.replica->program().run(loop); }));
  if (done_) return absl::OkStatus();
  // Otherwise the remaining work would be leased to other workers.
  return ReturnedEarly();
}

void PsLoop::Fit() {
  Program& program = context_.replica->program();
  const LoopBody body = [&program](Step& step, const data::Batch& batch) -> Nested {
    program.train_step(step, batch);
    return {};
  };
  data::Batch batch;
  while (Next(&batch, 1)) RunStep(body);
}

void PsLoop::Begin() {
  auto batch_size = context_.begin(lease_.global_batch_size());
  if (!batch_size.ok()) throw StatusError(batch_size.status());
  batch_size_ = *batch_size;
  StepRunnerOptions options;
  options.worker = context_.worker;
  options.global_batch_size = batch_size_;
  options.on_phase = [this](Phase phase) { Enter(phase); };
  integers_ = IntegerBuffersOf(*context_.replica);
  runner_ = StepRunner::Make(context_.replica, alone_.get(), context_.job, std::move(options));
}

bool PsLoop::Pull() {
  const Span span("wait for pulls");
  const MonotonicTime start = Clock::now();
  const absl::Status pulled = context_.exchange->Pull();
  wait_seconds_ += Seconds(Clock::now() - start);
  needs_pull_ = !pulled.ok();
  if (pulled.ok()) return true;
  if (!context_.recover()) throw StatusError(pulled);
  return false;
}

bool PsLoop::Next(data::Batch* batch, int64_t steps) {
  CheckSteps(steps);
  // The step's number is known with its lease, but its input begins before: the number is that
  // after the last step that this worker knows of. Other workers make steps meanwhile.
  if (runner_ != nullptr && !have_batch_) EnterSpanStep(lease_.steps() + 2);
  while (!have_batch_) {
    Enter(Phase::kData);
    const Span span("input");
    const MonotonicTime start = Clock::now();
    auto work = context_.leases->Take();
    if (!work.ok()) throw StatusError(work.status());
    if (work->done) {
      done_ = true;
      return false;
    }
    if (!work->lease) continue;
    const MonotonicTime taken = Clock::now();
    lease_ = *std::move(work->lease);
    if (runner_ == nullptr) {
      EnterSpanStep(lease_.steps() + 1);
      Begin();
    }
    if (const IntegerBuffers begin = context_.leases->TakeIntegers(); !begin.empty()) {
      const absl::Status set = SetIntegers(begin, context_.replica);
      if (!set.ok()) throw StatusError(set);
      integers_ = IntegerBuffersOf(*context_.replica);
    }
    *context_.steps = lease_.steps();
    auto& loaded = *static_cast<LoadedLease*>(work->examples.get());
    batch_ = std::move(loaded.examples.batch);
    examples_ = loaded.examples.count;
    auto left_out = damaged_.Exchange(loaded.examples.damaged);
    if (!left_out.ok()) throw StatusError(left_out.status());
    left_out_ = *std::move(left_out);
    rows_ = std::move(loaded.rows);
    // The parameters that came with the last push include other workers' pushes from before it
    // began.
    const bool too_old = context_.bounded && work->may_start > context_.exchange->push_began();
    wait_seconds_ = Seconds(taken - std::clamp(work->loaded, start, taken));
    input_seconds_ = Seconds(Clock::now() - start) - wait_seconds_;
    if ((needs_pull_ || lease_.pull() || too_old) && !Pull()) continue;
    if (lease_.has_evaluation()) {
      EvaluateLease();
      continue;
    }
    for (at::Tensor& t : batch_) t = t.to(context_.replica->device(), /*non_blocking=*/true);
    have_batch_ = true;
  }
  *batch = batch_;
  return true;
}

void PsLoop::EvaluateLease() {
  const Span span("evaluate");
  Enter(Phase::kEvaluate);
  ThrowIfError(context_.replica->CheckNothingRegisteredLate());
  proto::EvaluationDone done;
  done.set_lease(lease_.id());
  // No more examples at a time than in training.
  const int64_t most = PassBatchSize(context_.job, batch_size_, /*num_replicas=*/1);
  if (left_out_.count > 0) *done.mutable_left_out() = LeftOutOf(left_out_);
  // The chief is informed even if a whole part is damaged.
  for (int64_t begin = 0; begin == 0 || begin < examples_; begin += most) {
    const int64_t count = std::min(most, examples_ - begin);
    data::Batch part = batch_;
    for (at::Tensor& t : part) t = t.narrow(0, begin, count);
    SummaryData shown;
    auto part_sums = EvaluatePart(context_.job, context_.replica,
                                  static_cast<Split>(lease_.evaluation().split()), std::move(part),
                                  count, lease_.summary() && begin == 0 ? &shown : nullptr);
    if (!part_sums.ok()) throw StatusError(part_sums.status());
    const std::vector<double>& sums = part_sums->sums;
    if (lease_.summary() && begin == 0) *done.mutable_shown() = MessageOf(shown);
    while (done.sums_size() < static_cast<int>(sums.size())) done.add_sums(0);
    for (size_t i = 0; i < sums.size(); ++i)
      done.set_sums(static_cast<int>(i), done.sums(static_cast<int>(i)) + sums[i]);
    done.set_loss_weights(done.loss_weights() + part_sums->loss_divisor);
    for (const auto& [name, value] : part_sums->values) {
      proto::EvaluationDone::Value& all = (*done.mutable_values())[name];
      all.set_sum(all.sum() + value.sum);
      all.set_weight(all.weight() + value.weight);
    }
  }
  context_.leases->Complete(std::move(done));
}

StepOutcome PsLoop::RunStep(const LoopBody& body) {
  if (!have_batch_)
    throw StatusError(ProgramError("step was called without a batch: call next() first"));
  have_batch_ = false;
  const Span span("step");
  SetRates();
  StepPlan plan;
  plan.steps_done = lease_.steps();
  plan.epoch = epoch();
  plan.global_examples = examples_;
  plan.summary = lease_.summary();
  // Each of N workers moves running statistics by 1/N of its own step, so together they move as far
  // as one.
  context_.exchange->BeginStep(1.0 / context_.workers, std::move(rows_), lease_.id());
  std::optional<BatchNormWatch> watch;
  if (!checked_) watch.emplace();
  Nested results;
  auto result = runner_->Run(plan, batch_, examples_, [&](Step& step, const data::Batch& part) {
    results = Detached(body(step, part));
  });
  if (result.ok() && !std::exchange(checked_, true)) {
    CheckBatchNorm(*watch);
    ThrowIfError(context_.replica->CheckNothingRegisteredLate());
  }
  absl::Status status = NameLeftOut(result.status(), left_out_.count);
  if (status.ok()) {
    const Span wait("wait for pushes");
    status = context_.exchange->FinishStep();
  }
  if (!status.ok()) {
    if (ExitCodeOf(status) != ExitCode::kRetryable || !context_.recover())
      throw StatusError(status);
    needs_pull_ = true;
    return {};  // Continues as if the batch had not been leased.
  }
  *context_.has_trained = true;
  // Counts only this worker's steps, because each worker has its own loss scale.
  skipped_.Add(result->skipped);
  if (result->skipped)
    ThrowIfError(CheckLossScale(result->loss_scale, skipped_.in_a_row, lease_.steps() + 1));
  ReportIntegers();
  Measure(*result);
  context_.leases->Complete(DoneOf(*result));
  return OutcomeOf(*std::move(result), lease_.steps() + 1, std::move(results));
}

void PsLoop::Measure(const StepResult& result) {
  if (context_.meter == nullptr) return;
  context_.meter->AddExamples(examples_);
  context_.meter->AddStep(result.wait_seconds + wait_seconds_, input_seconds_);
  context_.meter->AddStaleness(context_.exchange->outcome().staleness_mean);
}

// Applies the learning rates that the chief's callbacks have set. Removes them if the servers have
// started again without them.
void PsLoop::SetRates() {
  const auto& rates = lease_.training().learning_rates();
  for (NamedOptimizer& optimizer : context_.replica->optimizers()) {
    const auto rate = rates.find(optimizer.name);
    const auto own = own_schedules_.find(optimizer.name);
    if (rate == rates.end()) {
      if (own == own_schedules_.end()) continue;
      optimizer.schedule = std::move(own->second);
      own_schedules_.erase(own);
      continue;
    }
    auto schedule = MakeSchedule(rate->second, {});
    ThrowIfError(schedule.status());
    if (own == own_schedules_.end())
      own_schedules_.emplace(optimizer.name, std::move(optimizer.schedule));
    optimizer.schedule = *std::move(schedule);
  }
}

void PsLoop::CheckBatchNorm(const BatchNormWatch& watch) const {
  if (!watch.needs_several_examples()) return;
  const Job& job = context_.job;
  const data::Sampler global =
      TrainSampler(job, *context_.replica, context_.train_examples, lease_.global_batch_size());
  const data::Sampler sampler(global.examples_per_epoch(), batch_size_, false);
  const std::string batch = BatchWithSingleExample(
      sampler, TotalSteps(job, sampler.batches_per_epoch()), 1, job.accumulate_steps);
  if (batch.empty()) return;
  throw StatusError(ConfigurationError(fmt::format(
      "{}, leaves a worker a single example, of which the program's batch normalisation over "
      "[batch, features] has no statistics: set \"drop_remainder\": true or another "
      "global_batch_size",
      batch)));
}

void PsLoop::ReportIntegers() {
  IntegerBuffers now = IntegerBuffersOf(*context_.replica);
  const IntegerBuffers changed = push_pull::ChangedSince(integers_, now);
  if (changed.empty()) return;
  // A report to a restarted chief holds all that have ever changed.
  for (const auto& [name, value] : changed) changing_integers_.insert(name);
  size_t bytes = 0;
  for (const std::string& name : changing_integers_) bytes += now.at(name).size();
  if (bytes > push_pull::kMaxIntegerBytes)
    throw StatusError(ProgramError(fmt::format(
        "steps have changed {} bytes of integer buffers ({} and others), and a report to the "
        "chief holds {}: keep what changes in every step in floating point, which servers hold",
        bytes, changed.begin()->first, push_pull::kMaxIntegerBytes)));
  context_.leases->ReportIntegers(changed, context_.exchange->sequence());
  integers_ = std::move(now);
}

proto::Shown PsLoop::MessageOf(const SummaryData& shown) {
  std::vector<std::string> left_out;
  proto::Shown message = ToMessage(shown.images, shown.histograms, &left_out);
  for (const std::string& tag : left_out)
    if (logged_left_out_.insert(tag).second)
      LogWarning(
          "the chief receives only a part of the images and histograms \"{}\": the limit for a "
          "batch is {} MiB",
          tag, kMaxShownBytes >> 20);
  return message;
}

proto::BatchDone PsLoop::DoneOf(const StepResult& result) {
  proto::BatchDone done;
  done.set_lease(lease_.id());
  done.set_loss(result.loss);
  done.set_learning_rate(result.learning_rate);
  done.mutable_learning_rates()->insert(result.learning_rates.begin(), result.learning_rates.end());
  done.mutable_gradient_norms()->insert(result.gradient_norms.begin(), result.gradient_norms.end());
  done.set_examples(result.examples);
  if (left_out_.count > 0) *done.mutable_left_out() = LeftOutOf(left_out_);
  done.set_loss_scale(result.loss_scale);
  done.set_skipped(result.skipped);
  for (const double sum : result.metric_increments) done.add_metric_sums(sum);
  for (const auto& [name, value] : result.values) (*done.mutable_values())[name] = value;
  done.mutable_value_weights()->insert(result.value_weights.begin(), result.value_weights.end());
  if (lease_.summary()) *done.mutable_shown() = MessageOf(result.summary);
  const push_pull::PushPullClient::Outcome& outcome = context_.exchange->outcome();
  done.set_staleness_max(outcome.staleness_max);
  done.set_staleness_mean(outcome.staleness_mean);
  done.set_bytes_pushed(outcome.bytes);
  done.mutable_views()->Assign(outcome.views.begin(), outcome.views.end());
  const std::set<std::string>& not_finite = context_.exchange->not_finite();
  done.mutable_not_finite()->Assign(not_finite.begin(), not_finite.end());
  done.set_compute_seconds(result.compute_seconds);
  done.set_wait_seconds(result.wait_seconds + wait_seconds_);
  done.set_input_seconds(input_seconds_);
  return done;
}

Nested PsLoop::Call(const std::function<Nested()>& function) {
  AutocastScope autocast(context_.job.precision, context_.replica->device());
  return Detached(function());
}

}  // namespace muster::worker
