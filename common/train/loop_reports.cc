// The reports of the loop to observers. Only rank 0's first replica makes them.
#include "common/train/evaluation.h"
#include "common/train/loop.h"
#include "common/train/replica/parameter_groups.h"

namespace muster {

std::map<std::string, double> LoopImpl::TrainMetrics() const {
  auto metrics = MetricResults(*replica_, state_.epoch_metric_sums.data());
  metrics["loss"] =
      state_.epoch_loss_sum / static_cast<double>(std::max<int64_t>(1, state_.epoch_examples));
  // A metric takes precedence over a reported value of the same name.
  for (const auto& [name, value] : state_.extras.epoch_values) metrics.emplace(name, value.mean());
  return metrics;
}

std::optional<LossScaleReport> LoopImpl::LossScale(bool skipped) const {
  if (context_.job.precision != Precision::kFloat16) return std::nullopt;
  return LossScaleReport{state_.loss_scaler.at(0), state_.extras.skipped.total, skipped};
}

void LoopImpl::ReportStart() {
  StartReport report;
  const Job& job = context_.job;
  report.program = job.program.is_string() ? job.program.get<std::string>() : job.program.dump();
  report.world_size = context_.world_size;
  report.num_replicas = context_.num_replicas;
  report.global_batch_size = state_.global_batch_size;
  report.steps_per_epoch = steps_per_epoch_;
  report.finished = state_.extras.finished;
  if (HasCallbacks()) report.weights_of = record().weights_of;
  report.epochs_begun = state_.position.epoch + (state_.epoch_begins() ? 0 : 1);
  report.epochs = job.epochs.value_or(job.max_steps ? 0 : 1);
  report.total_steps = TotalSteps(job, report.steps_per_epoch);
  report.start_step = state_.steps;
  report.start_examples = state_.examples;
  report.loss_scale = LossScale(/*skipped=*/false);
  if (state_.last_examples > 0) {
    StepReport& last = report.last_step.emplace();
    last.step = state_.steps;
    last.epoch = last_epoch();
    last.loss = state_.last_loss;
    last.learning_rate = state_.last_learning_rate;
    for (const NamedOptimizer& optimizer : replica_->optimizers())
      last.learning_rates[optimizer.name] = optimizer.schedule->At(state_.steps - 1);
    last.examples = state_.last_examples;
    last.values = state_.last_values;
    last.loss_scale = report.loss_scale;
  }
  for (const auto& [split, metrics] : state_.last_passes) {
    EpochReport& pass = report.passes.emplace_back();
    pass.split = split;
    pass.epoch = last_epoch();
    pass.step = state_.steps;
    pass.metrics = metrics;
  }
  report.validation_due = state_.validation_due;
  report.test_due = state_.test_due;
  if (state_.epoch_examples > 0 && (state_.epoch_begins() || IsFinished()))
    report.train_metrics = TrainMetrics();
  for (const auto& [split, dataset] : context_.datasets)
    report.split_sizes.emplace_back(SplitName(split),
                                    split == Split::kTrain ? data_.examples : dataset->size());
  for (const NamedModel& model : replica_->models()) {
    for (const auto& [name, parameter] : model.parameters) {
      report.parameters.push_back(
          {model.name, name, parameter.sizes().vec(), parameter.requires_grad()});
    }
    const ParameterCount count = CountParameters(model);
    report.parameter_counts.emplace_back(model.name, count.trained + count.frozen);
  }
  report.groups = DescribeGroups(*replica_);
  for (Observer* observer : context_.observers) observer->OnStart(report);
}

void LoopImpl::ReportStep(const StepResult& result) {
  StepReport report;
  report.step = state_.steps;
  report.epoch = loaded_.position.epoch;
  report.steps_per_epoch = steps_per_epoch_;
  report.step_in_epoch = loaded_.position.offset / state_.global_batch_size + 1;
  report.total_steps = TotalSteps(context_.job, report.steps_per_epoch);
  report.loss = result.loss;
  report.learning_rate = result.learning_rate;
  report.learning_rates = result.learning_rates;
  report.gradient_norms = result.gradient_norms;
  report.examples = result.examples;
  report.values = result.values;
  report.metrics = MetricResults(*replica_, state_.epoch_metric_sums.data());
  report.loss_scale = LossScale(result.skipped);
  report.compute_seconds = result.compute_seconds;
  report.wait_seconds = result.wait_seconds;
  report.total_seconds = report.step_seconds = Seconds(Clock::now() - step_start_);
  report.input_seconds = std::min(result.input_seconds, report.step_seconds);
  for (Observer* observer : context_.observers) observer->OnStep(report);
  ReportTables();
  ReportSummary(Split::kTrain, result.summary);
}

void LoopImpl::ReportTables() {
  const LocalEmbeddings& tables = replica_->tables();
  if (tables.size() == 0 || context_.observers.empty()) return;
  TablesReport report;
  report.step = state_.steps;
  for (int t = 0; t < tables.size(); ++t)
    report.tables.emplace_back(replica_->embeddings()[t].name, tables.table(t).statistics());
  for (Observer* observer : context_.observers) observer->OnTables(report);
}

void LoopImpl::ReportLeftOut(Split split, const DamagedExamples::Report& left_out) {
  if (left_out.count == 0) return;
  for (Observer* observer : context_.observers)
    observer->OnLeftOut(SplitName(split), left_out.count, left_out.names);
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

void LoopImpl::ReportSummary(Split split, const SummaryData& summary) {
  for (ImageReport images : summary.images) {
    images.step = state_.steps;
    for (Observer* observer : context_.observers) observer->OnImages(SplitName(split), images);
  }
  for (HistogramReport histogram : summary.histograms) {
    histogram.step = state_.steps;
    for (Observer* observer : context_.observers)
      observer->OnHistogram(SplitName(split), histogram);
  }
}

void LoopImpl::ReportParameters() {
  const int64_t every = context_.job.summary.histograms_every_epochs;
  if (every == 0 || (last_epoch() + 1) % every != 0 || context_.observers.empty()) return;
  for (const auto& [name, parameter] : NamedParameters(*replica_)) {
    HistogramReport report = MakeHistogram("parameters/" + name, parameter);
    report.step = state_.steps;
    for (Observer* observer : context_.observers)
      observer->OnHistogram(SplitName(Split::kTrain), report);
  }
}

}  // namespace muster
