#include "chief/parameter_server/training_reporter.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/logging.h"
#include "common/base/short_list.h"
#include "common/train/shown.h"

namespace muster::chief {
namespace {

// Logs refused pushes, but not every one, because a run with a NaN in its data may have many.
void LogRefused(const CompletedStep& step) {
  if (step.not_finite.empty()) return;
  // Logs the first, the tenth, the hundredth and so on.
  int64_t power = 1;
  while (power < step.refused_pushes) power *= 10;
  if (power != step.refused_pushes) return;
  LogWarning(
      "step {}: worker {} pushed numbers that are not finite for {}: parameter servers have "
      "refused them and left these variables as they were{}; look at the data of this batch, or "
      "lower the learning rate",
      step.step, step.worker, ShortList(step.not_finite, 8),
      step.refused_pushes > 1 ? fmt::format(" ({} such pushes by now)", step.refused_pushes) : "");
}

}  // namespace

std::map<std::string, double> TrainingReporter::TrainMetrics(
    const std::vector<double>& sums, double loss_sum, int64_t examples,
    const std::map<std::string, checkpoint::ReportedSum>& values) const {
  auto metrics = state_.Metrics(sums);
  metrics["loss"] = loss_sum / static_cast<double>(std::max<int64_t>(1, examples));
  // A metric of the same name takes precedence.
  for (const auto& [name, value] : values) metrics.emplace(name, value.mean());
  return metrics;
}

void TrainingReporter::Start(StartReport report, const checkpoint::TrainingState& at,
                             bool at_end_of_epoch) {
  state_.Describe(&report);
  report.epochs = job_.epochs.value_or(job_.max_steps ? 0 : 1);
  report.total_steps = state_.TotalSteps(report.steps_per_epoch);
  report.start_step = at.step;
  report.start_examples = at.examples;
  // The first step reports the scale.
  if (job_.precision == Precision::kFloat16)
    report.loss_scale = {0, at.extras.skipped.total, false};
  if (at.epoch_examples > 0 && at_end_of_epoch)
    report.train_metrics = TrainMetrics(at.epoch_metric_sums, at.epoch_loss_sum, at.epoch_examples,
                                        at.extras.epoch_values);
  const std::pair<const char*, int64_t> splits[] = {{kSplitNames[0], start_.train_examples},
                                                    {kSplitNames[1], start_.validation_examples},
                                                    {kSplitNames[2], start_.test_examples}};
  for (const auto& [name, size] : splits)
    if (size > 0) report.split_sizes.emplace_back(name, size);
  Notify([&](Observer* observer) { observer->OnStart(report); });
  step_time_ = Clock::now();
  if (epoch_start_ == MonotonicTime()) epoch_start_ = step_time_;
}

void TrainingReporter::BeginSteps(size_t count) {
  const MonotonicTime now = Clock::now();
  step_seconds_ = Seconds(now - step_time_) / static_cast<double>(count);
  step_time_ = now;
}

void TrainingReporter::Step(const CompletedStep& step, int64_t batches_per_epoch,
                            const std::map<int, push_pull::TableStatistics>& tables) {
  StepReport report;
  report.step = step.step;
  report.epoch = step.epoch;
  report.step_in_epoch = step.step_in_epoch;
  report.steps_per_epoch = batches_per_epoch;
  report.total_steps = state_.TotalSteps(report.steps_per_epoch);
  report.loss = step.loss;
  report.learning_rate = step.learning_rate;
  report.learning_rates = step.learning_rates;
  report.gradient_norms = step.gradient_norms;
  report.examples = step.examples;
  report.values = step.values;
  report.loss_scale = step.loss_scale;
  report.metrics = state_.Metrics(step.epoch_metric_sums);
  report.compute_seconds = step.compute_seconds;
  report.wait_seconds = step.wait_seconds;
  report.input_seconds = step.input_seconds;
  report.total_seconds = step_seconds_;
  report.step_seconds = step.compute_seconds + step.wait_seconds + step.input_seconds;
  Notify([&](Observer* observer) { observer->OnStep(report); });
  LeftOut(0, step.left_out);
  LogRefused(step);
  Shown(0, step.step, step.shown);
  Staleness(step);
  Tables(step.step, tables);
}

void TrainingReporter::EndEpoch(const CompletedStep& step) {
  Epoch(0, step.epoch, step.step, step.epoch_examples, Seconds(step_time_ - epoch_start_),
        TrainMetrics(step.epoch_metric_sums, step.epoch_loss_sum, step.epoch_examples,
                     step.epoch_values));
  MetricImages(0, step.step, step.epoch_metric_sums);
  epoch_start_ = step_time_;
}

void TrainingReporter::PassProgress(int split, int64_t done, int64_t total) {
  if (done == parts_) return;
  parts_ = done;
  Notify(
      [&](Observer* observer) { observer->OnEvaluateProgress(kSplitNames[split], done, total); });
}

void TrainingReporter::EndPass(int split, int64_t epoch, int64_t step,
                               const WorkTable::PassResult& pass, const proto::Shown& shown,
                               const std::map<std::string, double>& metrics) {
  Shown(split, step, shown);
  LeftOut(split, pass.left_out);
  MetricImages(split, step, {pass.sums.begin() + 2, pass.sums.end()});
  Epoch(split, epoch, step, static_cast<int64_t>(pass.sums[1]), Seconds(Clock::now() - pass_start_),
        metrics);
}

void TrainingReporter::Tables(int64_t step,
                              const std::map<int, push_pull::TableStatistics>& tables) {
  TablesReport report;
  report.step = step;
  const std::vector<push_pull::VariableSpec>& variables = state_.variables();
  for (const auto& [variable, statistics] : tables)
    if (variable >= 0 && variable < static_cast<int>(variables.size()))
      report.tables.emplace_back(variables[variable].name, statistics);
  if (!report.tables.empty()) Notify([&](Observer* observer) { observer->OnTables(report); });
}

void TrainingReporter::Parameters(int64_t step) {
  for (HistogramReport& report : state_.Parameters()) {
    report.step = step;
    Notify([&](Observer* observer) { observer->OnHistogram("train", report); });
  }
}

void TrainingReporter::MetricImages(int split, int64_t step, const std::vector<double>& sums) {
  if (start_.observers.empty()) return;
  for (ImageReport& image : state_.MetricImages(sums)) {
    image.step = step;
    Notify([&](Observer* observer) { observer->OnImages(kSplitNames[split], image); });
  }
}

void TrainingReporter::LeftOut(int split, const proto::LeftOut& left_out) {
  if (left_out.examples() == 0) return;
  const std::vector<std::string> names(left_out.names().begin(), left_out.names().end());
  Notify([&](Observer* observer) {
    observer->OnLeftOut(kSplitNames[split], left_out.examples(), names);
  });
}

// Reports the images, histograms, scalars and other values that the program showed.
void TrainingReporter::Shown(int split, int64_t step, const proto::Shown& shown) {
  for (const proto::Shown::Images& images : shown.images())
    Notify([&, report = ImagesOf(images, step)](Observer* observer) {
      observer->OnImages(kSplitNames[split], report);
    });
  for (const proto::Shown::Histogram& histogram : shown.histograms())
    Notify([&, report = HistogramOf(histogram, step)](Observer* observer) {
      observer->OnHistogram(kSplitNames[split], report);
    });
}

// Reports the staleness of each worker's pushes since the last summary: a histogram, the largest
// and the mean.
void TrainingReporter::Staleness(const CompletedStep& step) {
  const int64_t every = job_.summary.every_steps;
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
    Notify([&](Observer* observer) { observer->OnHistogram("train", histogram); });
  }
  Notify([&](Observer* observer) { observer->OnScalars("train", scalars); });
  staleness_.clear();
}

void TrainingReporter::Epoch(int split, int64_t epoch, int64_t step, int64_t examples,
                             double seconds, std::map<std::string, double> metrics) {
  EpochReport report;
  report.split = kSplitNames[split];
  report.epoch = epoch;
  report.step = step;
  report.examples = examples;
  report.metrics = std::move(metrics);
  report.seconds = seconds;
  Notify([&](Observer* observer) { observer->OnEpoch(report); });
}

}  // namespace muster::chief
