#include "common/train/loop.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>

#include "common/base/logging.h"
#include "common/train/precision.h"

namespace muster {

// ---- LocalExchange

absl::StatusOr<std::vector<at::Tensor>> LocalExchange::Exchange(int replica,
                                                                const at::Tensor& value) {
  absl::MutexLock lock(&mutex_);
  if (!status_.ok()) return status_;
  values_[replica] = value;
  const int64_t round = round_;
  if (++arrived_ == size_) {
    result_ = values_;
    arrived_ = 0;
    ++round_;
    return result_;
  }
  auto over = [this, round]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return round_ != round || !status_.ok();
  };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&over), absl::FromChrono(timeout_))) {
    return DeadlinePassed(
        fmt::format("{} of {} replicas of this process came to local_results", arrived_, size_));
  }
  if (round_ == round) return status_;
  return result_;
}

void LocalExchange::Abort(absl::Status why) {
  absl::MutexLock lock(&mutex_);
  if (status_.ok()) status_ = std::move(why);
}

// ---- LoopImpl

namespace {
StepRunnerOptions RunnerOptions(const LoopContext& context, int local_index,
                                std::function<void(Phase)> on_phase) {
  StepRunnerOptions options;
  options.replica = context.first_replica + local_index;
  options.num_replicas = context.num_replicas;
  options.first_local = local_index == 0;
  options.global_batch_size = context.global_batch_size;
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
                   int local_index)
    : context_(context),
      replica_(replica),
      communicator_(communicator),
      local_index_(local_index),
      global_replica_(context.first_replica + local_index),
      runner_(replica, communicator, context.job,
              RunnerOptions(context, local_index, [this](Phase phase) { Enter(phase); })),
      sampler_(TrainSampler(context.job, *replica, context.datasets.at(Split::kTrain)->size(),
                            context.global_batch_size)) {
  size_t sums = 0;
  for (const NamedMetric& metric : replica_->metrics()) sums += metric.metric->width();
  state_.epoch_metric_sums.resize(sums);
}

LoopImpl::~LoopImpl() = default;

absl::Status LoopImpl::Run() {
  MUSTER_RETURN_IF_ERROR(
      CatchProgramErrors("taking over the state", [&] { ThrowIfError(BroadcastState()); }));
  data::PipelineOptions options;
  options.seed = context_.job.seed;
  pipeline_ = data::Pipeline::Make(context_.datasets.at(Split::kTrain), sampler_, state_.position,
                                   global_replica_, 1, context_.num_replicas, options);
  if (reporter()) ReportStart();
  epoch_start_ = step_start_ = Clock::now();
  replica_->SetTraining(true);
  Loop loop(this);
  MUSTER_RETURN_IF_ERROR(CatchProgramErrors("run", [&] { replica_->program().run(loop); }));
  if (stop_) return Preempted(fmt::format("stopped on request after step {}", state_.steps));
  return absl::OkStatus();
}

// ---- State

void LoopImpl::BroadcastTensors(const std::vector<at::Tensor>& tensors) {
  // One broadcast for each type: many small tensors would cost a round trip each.
  at::NoGradGuard no_grad;
  std::vector<at::ScalarType> types;
  for (const at::Tensor& t : tensors) {
    if (std::find(types.begin(), types.end(), t.scalar_type()) == types.end())
      types.push_back(t.scalar_type());
  }
  for (at::ScalarType type : types) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& t : tensors) {
      if (t.scalar_type() == type) flat.push_back(t.detach().reshape({-1}).to(replica_->device()));
    }
    at::Tensor joined = at::cat(flat);
    ThrowIfError(communicator_->Broadcast(BufferOf(joined), context_.owner_replica)->Wait());
    int64_t offset = 0;
    for (const at::Tensor& t : tensors) {
      if (t.scalar_type() != type) continue;
      t.detach().copy_(joined.narrow(0, offset, t.numel()).reshape(t.sizes()));
      offset += t.numel();
    }
  }
}

absl::Status LoopImpl::BroadcastState() {
  std::vector<double> scalars = {static_cast<double>(state_.steps),
                                 static_cast<double>(state_.position.epoch),
                                 static_cast<double>(state_.position.offset), state_.epoch_loss_sum,
                                 static_cast<double>(state_.epoch_examples)};
  const size_t metrics_at = scalars.size();
  scalars.insert(scalars.end(), state_.epoch_metric_sums.begin(), state_.epoch_metric_sums.end());
  const size_t scaler_at = scalars.size();
  const std::vector<double> scaler = runner_.scaler_state();
  scalars.insert(scalars.end(), scaler.begin(), scaler.end());
  const at::Tensor host = at::tensor(scalars, at::kDouble);
  std::vector<at::Tensor> tensors = replica_->state();
  tensors.push_back(host);
  BroadcastTensors(tensors);
  const double* s = host.const_data_ptr<double>();
  state_.steps = static_cast<int64_t>(s[0]);
  state_.position = {static_cast<int64_t>(s[1]), static_cast<int64_t>(s[2])};
  state_.epoch_loss_sum = s[3];
  state_.epoch_examples = static_cast<int64_t>(s[4]);
  state_.epoch_metric_sums.assign(s + metrics_at, s + scaler_at);
  runner_.set_scaler_state(std::vector<double>(s + scaler_at, s + scaler_at + scaler.size()));
  return absl::OkStatus();
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

bool LoopImpl::Finished() const {
  const Job& job = context_.job;
  if (stop_ || (job.max_steps && state_.steps >= *job.max_steps)) return true;
  if (!job.epochs && job.max_steps) return false;
  return state_.position.epoch >= job.epochs.value_or(1);
}

bool LoopImpl::Next(data::Batch* batch) {
  if (Finished()) return false;
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
  plan.stop_requested = first_local() && context_.membership->StopRequested();
  auto result = runner_.Run(plan, loaded_.batch, loaded_.local.size(), body);
  if (!result.ok()) throw StatusError(result.status());
  // The commit: everything below is computed, not exchanged.
  ++state_.steps;
  state_.epoch_loss_sum += result->loss * static_cast<double>(result->examples);
  state_.epoch_examples += result->examples;
  for (size_t i = 0; i < state_.epoch_metric_sums.size(); ++i)
    state_.epoch_metric_sums[i] += result->metric_increments[i];
  const int64_t epoch = state_.position.epoch;
  state_.position = sampler_.Next(state_.position);
  stop_ = stop_ || result->stop;
  loaded_.position.epoch = epoch;
  if (reporter()) ReportStep(*result);
  epoch_ended_ = state_.position.offset == 0;
  if (epoch_ended_) EndEpoch();
  step_start_ = Clock::now();
}

void LoopImpl::EndEpoch() {
  CheckReplicasEqual();
  const int64_t epoch = loaded_.position.epoch;
  if (reporter()) {
    auto metrics = MetricResults(state_.epoch_metric_sums.data());
    metrics["loss"] =
        state_.epoch_loss_sum / static_cast<double>(std::max<int64_t>(1, state_.epoch_examples));
    ReportEpoch(Split::kTrain, epoch, state_.epoch_examples, Seconds(Clock::now() - epoch_start_),
                metrics);
  }
  state_.epoch_loss_sum = 0;
  state_.epoch_examples = 0;
  std::fill(state_.epoch_metric_sums.begin(), state_.epoch_metric_sums.end(), 0.0);
  epoch_start_ = Clock::now();
}

void LoopImpl::Fit() {
  Program& program = replica_->program();
  const StepRunner::Body body = [&program](Step& step, const data::Batch& batch) {
    program.train_step(step, batch);
  };
  const auto validate = [this] {
    if (!stop_ && context_.datasets.contains(Split::kValidation)) Evaluate(Split::kValidation);
    epoch_start_ = step_start_ = Clock::now();
  };
  data::Batch batch;
  while (Next(&batch)) {
    RunStep(body);
    if (epoch_ended_) validate();
  }
  if (stop_) return;
  if (state_.epoch_examples > 0) {  // max_steps ended in the middle of an epoch
    EndEpoch();
    validate();
  }
  if (context_.datasets.contains(Split::kTest)) Evaluate(Split::kTest);
}

// ---- Evaluation

class EvaluationImpl {
 public:
  EvaluationImpl(const Replica& replica, Split split) : replica(replica), split(split) {
    int64_t width = 2;  // loss, examples
    for (const NamedMetric& metric : replica.metrics()) width += metric.metric->width();
    sums = at::zeros({width}, at::TensorOptions().dtype(at::kDouble).device(replica.device()));
  }
  void Update(int index, const at::Tensor& output, const at::Tensor& target) {
    int64_t at = 2;
    for (int m = 0; m < index; ++m) at += replica.metrics()[m].metric->width();
    const Metric& metric = *replica.metrics().at(index).metric;
    sums.narrow(0, at, metric.width()).add_(metric.Increment(output, target).to(at::kDouble));
  }

  const Replica& replica;
  const Split split;
  at::Tensor sums;
  int64_t examples = 0;  // of the batch under way
};

Split Evaluation::split() const { return impl_->split; }
at::Device Evaluation::device() const { return impl_->replica.device(); }
void Evaluation::loss(const at::Tensor& per_example) {
  if (per_example.dim() != 1 || per_example.size(0) != impl_->examples) {
    throw StatusError(ProgramError(fmt::format(
        "the loss of eval_step needs one value for each example, shape [{}]", impl_->examples)));
  }
  impl_->sums[0].add_(per_example.detach().sum(at::kDouble));
}
void Evaluation::update(MetricHandle metric, const at::Tensor& output, const at::Tensor& target) {
  impl_->Update(metric.index, output, target);
}

std::vector<double> LoopImpl::SumOverReplicas(const std::vector<double>& values) {
  at::Tensor sums = at::tensor(values, at::kDouble).to(replica_->device());
  ThrowIfError(communicator_->AllReduce(BufferOf(sums), ReduceOp::kSum)->Wait());
  const at::Tensor host = sums.to(at::kCPU);
  return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel()};
}

std::map<std::string, double> LoopImpl::Evaluate(Split split) {
  const auto dataset = context_.datasets.find(split);
  if (dataset == context_.datasets.end())
    throw StatusError(
        ProgramError(fmt::format("the program declares no dataset for {}", SplitName(split))));
  const MonotonicTime start = Clock::now();
  Enter(Phase::kEvaluate);
  at::NoGradGuard no_grad;
  replica_->SetTraining(false);
  const int64_t size = dataset->second->size();
  EvaluationImpl evaluation(*replica_, split);
  if (size > 0) {
    data::Sampler sampler(size, context_.global_batch_size, /*drop_remainder=*/false);
    data::PipelineOptions options;
    options.seed = context_.job.seed;
    options.repeat = false;
    auto pipeline = data::Pipeline::Make(dataset->second, sampler, {}, global_replica_, 1,
                                         context_.num_replicas, options);
    for (int64_t b = 0; b < sampler.batches_per_epoch(); ++b) {
      auto loaded = pipeline->Next(0);
      if (!loaded.ok()) throw StatusError(loaded.status());
      evaluation.examples = loaded->local.size();
      evaluation.sums[1].add_(static_cast<double>(evaluation.examples));
      for (at::Tensor& t : loaded->batch) t = t.to(replica_->device(), /*non_blocking=*/true);
      Evaluation handle(&evaluation);
      AutocastScope autocast(context_.job.precision, replica_->device());
      ThrowIfError(CatchProgramErrors(
          "eval_step", [&] { replica_->program().eval_step(handle, loaded->batch); }));
      if (reporter()) {
        for (Observer* observer : context_.observers)
          observer->OnEvaluateProgress(SplitName(split), b + 1, sampler.batches_per_epoch());
      }
    }
  }
  replica_->SetTraining(true);
  const at::Tensor local = evaluation.sums.to(at::kCPU);
  const std::vector<double> sums = SumOverReplicas(
      {local.const_data_ptr<double>(), local.const_data_ptr<double>() + local.numel()});
  auto metrics = MetricResults(sums.data() + 2);
  metrics["loss"] = sums[1] > 0 ? sums[0] / sums[1] : 0;
  const int64_t epoch =
      std::max<int64_t>(0, state_.position.epoch - (state_.position.offset == 0 ? 1 : 0));
  if (reporter())
    ReportEpoch(split, epoch, static_cast<int64_t>(sums[1]), Seconds(Clock::now() - start),
                metrics);
  Enter(Phase::kForward);
  return metrics;
}

std::map<std::string, double> LoopImpl::MetricResults(const double* sums) const {
  std::map<std::string, double> results;
  for (const NamedMetric& metric : replica_->metrics()) {
    results[metric.name] = metric.metric->Result({sums, sums + metric.metric->width()});
    sums += metric.metric->width();
  }
  return results;
}

// ---- Values across replicas

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

// ---- Reports

void LoopImpl::ReportStart() {
  StartReport report;
  const Job& job = context_.job;
  report.program = job.program.is_string() ? job.program.get<std::string>() : job.program.dump();
  report.world_size = context_.world_size;
  report.num_replicas = context_.num_replicas;
  report.global_batch_size = context_.global_batch_size;
  report.steps_per_epoch = sampler_.batches_per_epoch();
  report.epochs = job.epochs.value_or(job.max_steps ? 0 : 1);
  report.total_steps = TotalSteps(job, report.steps_per_epoch);
  report.start_step = state_.steps;
  for (const auto& [split, dataset] : context_.datasets)
    report.split_sizes.emplace_back(SplitName(split), dataset->size());
  for (const NamedModel& model : replica_->models()) {
    int64_t count = 0;
    for (const auto& [name, parameter] : model.parameters) {
      count += parameter.numel();
      report.parameters.push_back(
          {model.name, name, parameter.sizes().vec(), parameter.requires_grad()});
    }
    report.parameter_counts.emplace_back(model.name, count);
  }
  for (Observer* observer : context_.observers) observer->OnStart(report);
}

void LoopImpl::ReportStep(const StepResult& result) {
  StepReport report;
  report.step = state_.steps;
  report.epoch = loaded_.position.epoch;
  report.steps_per_epoch = sampler_.batches_per_epoch();
  report.step_in_epoch = loaded_.position.offset / context_.global_batch_size + 1;
  report.total_steps = TotalSteps(context_.job, report.steps_per_epoch);
  report.loss = result.loss;
  report.learning_rate = result.learning_rate;
  report.examples = result.examples;
  report.values = result.values;
  report.metrics = MetricResults(state_.epoch_metric_sums.data());
  report.compute_seconds = result.compute_seconds;
  report.wait_seconds = result.wait_seconds;
  report.input_seconds = input_seconds_;
  report.total_seconds = Seconds(Clock::now() - step_start_);
  for (Observer* observer : context_.observers) observer->OnStep(report);
}

void LoopImpl::ReportEpoch(Split split, int64_t epoch, int64_t examples, double seconds,
                           const std::map<std::string, double>& metrics) {
  EpochReport report;
  report.split = SplitName(split);
  report.epoch = epoch;
  report.step = state_.steps;
  report.examples = examples;
  report.metrics = metrics;
  report.seconds = seconds;
  for (Observer* observer : context_.observers) observer->OnEpoch(report);
}

// ---- Loop forwards.

void Loop::fit() { impl_->Fit(); }
bool Loop::next(data::Batch* batch) { return impl_->Next(batch); }
void Loop::step(const std::function<void(Step&, const data::Batch&)>& body) {
  impl_->RunStep(body);
}
std::map<std::string, double> Loop::evaluate(Split split) { return impl_->Evaluate(split); }
at::Tensor Loop::reduce_sum(const at::Tensor& value) {
  return impl_->Reduce(value, ReduceOp::kSum);
}
at::Tensor Loop::reduce_mean(const at::Tensor& value) {
  return impl_->Reduce(value, ReduceOp::kMean);
}
at::Tensor Loop::gather(const at::Tensor& value) { return impl_->Gather(value); }
std::vector<at::Tensor> Loop::local_results(const at::Tensor& value) {
  return impl_->LocalResults(value);
}
int64_t Loop::steps() const { return impl_->state().steps; }
int64_t Loop::epoch() const { return impl_->state().position.epoch; }

}  // namespace muster
