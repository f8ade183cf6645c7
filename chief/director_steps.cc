// What observers are told, in the order of completion.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "chief/director_impl.h"
#include "common/base/logging.h"
#include "common/train/shown.h"

namespace muster {
namespace {

constexpr const char* kSplitNames[] = {"train", "validation", "test"};  // by muster::Split

// Not of every one: a run whose data have a NaN may have many.
void SayRefused(const CompletedStep& step) {
  if (step.not_finite.empty()) return;
  // The first, the tenth, the hundredth.
  int64_t power = 1;
  while (power < step.refused_pushes) power *= 10;
  if (power != step.refused_pushes) return;
  constexpr size_t kShown = 8;
  const size_t shown = std::min(kShown, step.not_finite.size());
  const size_t more = step.not_finite.size() - shown;
  LogWarning(
      "step {}: worker {} pushed numbers that are not finite for {}{}: parameter servers have "
      "refused them and left these variables as they were{}; look at the data of this batch, or "
      "lower the learning rate",
      step.step, step.worker,
      fmt::join(step.not_finite.begin(), step.not_finite.begin() + shown, ", "),
      more > 0 ? fmt::format(" and {} more", more) : "",
      step.refused_pushes > 1 ? fmt::format(" ({} such pushes by now)", step.refused_pushes) : "");
}

}  // namespace

std::map<std::string, double> DirectorImpl::TrainMetrics(
    const std::vector<double>& sums, double loss_sum, int64_t examples,
    const std::map<std::string, checkpoint::ReportedSum>& values) const {
  auto metrics = state_->Metrics(sums);
  metrics["loss"] = loss_sum / static_cast<double>(std::max<int64_t>(1, examples));
  // A metric of the same name goes before.
  for (const auto& [name, value] : values) metrics.emplace(name, value.mean());
  return metrics;
}

void DirectorImpl::ReportStart() {
  checkpoint::TrainingState at;
  StartReport report;
  {
    absl::MutexLock lock(&mu_);
    at = table_->state();
    report.steps_per_epoch = table_->batches_per_epoch();
  }
  const Job& job = options_.job;
  state_->Describe(&report);
  report.world_size = report.num_replicas = options_.workers;
  report.global_batch_size = global_batch_size_;
  report.epochs = job.epochs.value_or(job.max_steps ? 0 : 1);
  report.total_steps = state_->TotalSteps(report.steps_per_epoch);
  report.start_step = at.step;
  report.start_examples = at.examples;
  // Whose scale it would be the first step tells.
  if (job.precision == Precision::kFloat16) report.loss_scale = {0, at.extras.skipped.total, false};
  report.validation_due = validation_due_;
  report.test_due = test_due_;
  report.finished = Stopping();
  if (callbacks_) report.weights_of = callbacks_->weights_of;
  if (at.epoch_examples > 0 && (at.offset == 0 || Through(at)))
    report.train_metrics = TrainMetrics(at.epoch_metric_sums, at.epoch_loss_sum, at.epoch_examples,
                                        at.extras.epoch_values);
  const std::pair<const char*, int64_t> splits[] = {{kSplitNames[0], start_.train_examples},
                                                    {kSplitNames[1], start_.validation_examples},
                                                    {kSplitNames[2], start_.test_examples}};
  for (const auto& [name, size] : splits)
    if (size > 0) report.split_sizes.emplace_back(name, size);
  Tell([&](Observer* observer) { observer->OnStart(report); });
  report_start_ = false;
  step_time_ = Clock::now();
  // Where an epoch is gone on with, it began earlier.
  if (epoch_start_ == MonotonicTime()) epoch_start_ = step_time_;
}

void DirectorImpl::ReportSteps(Json* record) {
  std::vector<CompletedStep> steps;
  int64_t batches_per_epoch = 0;
  {
    absl::MutexLock lock(&mu_);
    batches_per_epoch = table_->batches_per_epoch();
    steps = table_->TakeCompleted();
    if (record != nullptr) *record = table_->ToRecord();
  }
  if (steps.empty()) return;
  const MonotonicTime now = Clock::now();
  // Those that came together share the time since those before.
  const double seconds = Seconds(now - step_time_) / static_cast<double>(steps.size());
  step_time_ = now;
  for (const CompletedStep& step : steps) {
    ReportStep(step, seconds);
    validation_due_ = test_due_ = false;
    last_loss_ = step.loss;
    validation_metrics_.clear();
    if (callbacks_ && callbacks_begun_ && callback_failed_.ok()) {
      callback_failed_ =
          state_->Fire(Hook::kStepEnd, {step.step, step.epoch, Split::kTrain, step.loss,
                                        TrainMetrics(step.epoch_metric_sums, step.epoch_loss_sum,
                                                     step.epoch_examples, step.epoch_values)});
    }
    // Late steps of the epoch before may count in this one, and its own in the next.
    if (step.epoch_end && step.epoch_examples == 0 && step.left_out.examples() > 0 &&
        step.step_in_epoch >= batches_per_epoch)
      steps_failed_ = DataError(fmt::format(
          "epoch {} had no example to train on: all of its examples are damaged, and on_error "
          "\"skip\" leaves them out",
          step.epoch + 1));
    if (step.epoch_end || step.through) {
      ReportEpoch(0, step.epoch, step.step, step.epoch_examples, Seconds(now - epoch_start_),
                  TrainMetrics(step.epoch_metric_sums, step.epoch_loss_sum, step.epoch_examples,
                               step.epoch_values));
      ReportMetricImages(0, step.step, step.epoch_metric_sums);
      validation_due_ = start_.validation_examples > 0;
      test_due_ =
          start_.test_examples > 0 && (step.through || (step.epoch_end && start_.test_every > 0 &&
                                                        (step.epoch + 1) % start_.test_every == 0));
      const int64_t every = options_.job.summary.histograms_every_epochs;
      cut_for_histograms_ = cut_for_histograms_ || (every > 0 && (step.epoch + 1) % every == 0 &&
                                                    !start_.observers.empty());
      epoch_start_ = now;
    }
    SaveMoment moment;
    moment.step = step.step;
    moment.epoch = step.epoch;
    moment.epoch_end = step.epoch_end;
    moment.last = step.through;
    // The last one is wanted whatever the sink says, and asked for where it is taken.
    if (start_.checkpoints == nullptr || step.through || save_wanted_) continue;
    moment.busy = save_ != nullptr;
    save_wanted_ = start_.checkpoints->Wanted(moment);
  }
  last_step_ = steps.back();
}

void DirectorImpl::ReportStep(const CompletedStep& step, double seconds) {
  StepReport report;
  report.step = step.step;
  report.epoch = step.epoch;
  report.step_in_epoch = step.step_in_epoch;
  {
    absl::MutexLock lock(&mu_);
    report.steps_per_epoch = table_->batches_per_epoch();
  }
  report.total_steps = state_->TotalSteps(report.steps_per_epoch);
  report.loss = step.loss;
  report.learning_rate = step.learning_rate;
  report.learning_rates = step.learning_rates;
  report.gradient_norms = step.gradient_norms;
  report.examples = step.examples;
  report.values = step.values;
  report.loss_scale = step.loss_scale;
  report.metrics = state_->Metrics(step.epoch_metric_sums);
  report.compute_seconds = step.compute_seconds;
  report.wait_seconds = step.wait_seconds;
  report.input_seconds = step.input_seconds;
  report.total_seconds = seconds;
  report.step_seconds = step.compute_seconds + step.wait_seconds + step.input_seconds;
  Tell([&](Observer* observer) { observer->OnStep(report); });
  ReportLeftOut(0, step.left_out);
  SayRefused(step);
  ReportShown(0, step.step, step.shown);
  ReportStaleness(step);
  ReportTables(step.step);
}

// As the servers told last, which is a second ago at the most.
void DirectorImpl::ReportTables(int64_t step) {
  std::map<int, TableStatistics> all;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& server : servers_)
      for (const auto& [variable, statistics] : server->tables) all[variable] += statistics;
  }
  TablesReport report;
  report.step = step;
  const std::vector<VariableSpec>& variables = state_->variables();
  for (const auto& [variable, statistics] : all)
    if (variable >= 0 && variable < static_cast<int>(variables.size()))
      report.tables.emplace_back(variables[variable].name, statistics);
  if (!report.tables.empty()) Tell([&](Observer* observer) { observer->OnTables(report); });
}

void DirectorImpl::ReportMetricImages(int split, int64_t step, const std::vector<double>& sums) {
  if (start_.observers.empty()) return;
  for (ImageReport& image : state_->MetricImages(sums)) {
    image.step = step;
    Tell([&](Observer* observer) { observer->OnImages(kSplitNames[split], image); });
  }
}

void DirectorImpl::ReportLeftOut(int split, const proto::LeftOut& left_out) {
  if (left_out.examples() == 0) return;
  const std::vector<std::string> names(left_out.names().begin(), left_out.names().end());
  Tell([&](Observer* observer) {
    observer->OnLeftOut(kSplitNames[split], left_out.examples(), names);
  });
}

// What the program showed.
void DirectorImpl::ReportShown(int split, int64_t step, const proto::Shown& shown) {
  for (const proto::Shown::Images& images : shown.images())
    Tell([&, report = ImagesOf(images, step)](Observer* observer) {
      observer->OnImages(kSplitNames[split], report);
    });
  for (const proto::Shown::Histogram& histogram : shown.histograms())
    Tell([&, report = HistogramOf(histogram, step)](Observer* observer) {
      observer->OnHistogram(kSplitNames[split], report);
    });
}

// Since the last summary: a histogram of each worker's pushes, and its largest and mean staleness.
void DirectorImpl::ReportStaleness(const CompletedStep& step) {
  const int64_t every = options_.job.summary.every_steps;
  if (every == 0) return;
  auto& [means, most] = staleness_[step.worker];
  means.push_back(step.staleness_mean);
  most = std::max(most, step.staleness_max);
  if (step.step % every != 0) return;
  ScalarReport scalars;
  scalars.step = step.step;
  for (const auto& [worker, measured] : staleness_) {
    const auto& [values, largest] = measured;
    HistogramReport histogram;
    histogram.tag = fmt::format("staleness/worker_{}", worker);
    histogram.step = step.step;
    histogram.distribution = summary::DistributionOf(values);
    double sum = 0;
    for (const double value : values) sum += value;
    scalars.values.emplace_back(histogram.tag + "/max", static_cast<double>(largest));
    scalars.values.emplace_back(histogram.tag + "/mean", sum / static_cast<double>(values.size()));
    Tell([&](Observer* observer) { observer->OnHistogram("train", histogram); });
  }
  Tell([&](Observer* observer) { observer->OnScalars("train", scalars); });
  staleness_.clear();
}

void DirectorImpl::ReportEpoch(int split, int64_t epoch, int64_t step, int64_t examples,
                               double seconds, std::map<std::string, double> metrics) {
  EpochReport report;
  report.split = kSplitNames[split];
  report.epoch = epoch;
  report.step = step;
  report.examples = examples;
  report.metrics = std::move(metrics);
  report.seconds = seconds;
  Tell([&](Observer* observer) { observer->OnEpoch(report); });
}

}  // namespace muster
