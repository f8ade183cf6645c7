#include "common/train/loop/loop_reports.h"

#include <algorithm>

#include "common/telemetry/task_meter.h"
#include "common/train/graph_observer.h"
#include "common/train/replica/parameter_groups.h"

namespace muster {

std::map<std::string, double> TrainMetrics(const Replica& replica, const LoopState& state) {
  auto metrics = MetricResults(replica, state.epoch_metric_sums.data());
  metrics["loss"] =
      state.epoch_loss_sum / static_cast<double>(std::max<int64_t>(1, state.epoch_examples));
  // A metric takes precedence over a reported value of the same name.
  for (const auto& [name, value] : state.extras.epoch_values) metrics.emplace(name, value.mean());
  return metrics;
}

std::optional<LossScaleReport> LoopReports::LossScale(bool skipped) const {
  if (loop_.context.job.precision != Precision::kFloat16) return std::nullopt;
  return LossScaleReport{state_.loss_scaler.at(0), state_.extras.skipped.total, skipped};
}

void LoopReports::Start() const {
  if (!loop_.reporter()) return;
  StartReport report;
  const Job& job = loop_.context.job;
  report.program = job.program.is_string() ? job.program.get<std::string>() : job.program.dump();
  report.world_size = loop_.context.world_size;
  report.num_replicas = loop_.context.num_replicas;
  report.global_batch_size = state_.global_batch_size;
  report.steps_per_epoch = loop_.data.steps_per_epoch;
  report.finished = state_.extras.finished;
  if (state_.extras.callbacks) report.weights_of = state_.extras.callbacks->weights_of;
  report.epochs_begun = state_.epoch + (state_.epoch_begins() ? 0 : 1);
  report.epochs = job.epochs.value_or(job.max_steps ? 0 : 1);
  report.total_steps = TotalSteps(job, report.steps_per_epoch);
  report.start_step = state_.step;
  report.start_examples = state_.examples;
  report.loss_scale = LossScale(/*skipped=*/false);
  report.last_step = LastStep();
  report.passes = LastPasses();
  report.validation_due = state_.validation_due;
  report.test_due = state_.test_due;
  if (state_.epoch_examples > 0 && (state_.epoch_begins() || loop_.IsFinished()))
    report.train_metrics = TrainMetrics(*loop_.replica, state_);
  for (const auto& [split, dataset] : loop_.context.datasets)
    report.split_sizes.emplace_back(SplitName(split),
                                    split == Split::kTrain ? loop_.data.examples : dataset->size());
  DescribeModels(*loop_.replica, &report);
  for (Observer* observer : observers()) observer->OnStart(report);
}

std::optional<StepReport> LoopReports::LastStep() const {
  if (state_.last_examples <= 0) return std::nullopt;
  StepReport last;
  last.step = state_.step;
  last.epoch = state_.last_epoch();
  last.loss = state_.last_loss;
  last.learning_rate = state_.last_learning_rate;
  for (const NamedOptimizer& optimizer : loop_.replica->optimizers())
    last.learning_rates[optimizer.name] = optimizer.schedule->At(state_.step - 1);
  last.examples = state_.last_examples;
  last.values = state_.last_values;
  last.loss_scale = LossScale(/*skipped=*/false);
  return last;
}

std::vector<EpochReport> LoopReports::LastPasses() const {
  std::vector<EpochReport> passes;
  for (const auto& [split, metrics] : state_.last_passes) {
    EpochReport& pass = passes.emplace_back();
    pass.split = split;
    pass.epoch = state_.last_epoch();
    pass.step = state_.step;
    pass.metrics = metrics;
  }
  return passes;
}

void LoopReports::Step(const StepResult& result, const FedBatch& batch) const {
  if (!loop_.reporter()) return;
  StepReport report;
  report.step = state_.step;
  report.epoch = batch.position.epoch;
  report.steps_per_epoch = loop_.data.steps_per_epoch;
  report.step_in_epoch = batch.position.offset / state_.global_batch_size + 1;
  report.total_steps = TotalSteps(loop_.context.job, report.steps_per_epoch);
  report.loss = result.loss;
  report.learning_rate = result.learning_rate;
  report.learning_rates = result.learning_rates;
  report.gradient_norms = result.gradient_norms;
  report.examples = result.examples;
  report.values = result.values;
  report.metrics = MetricResults(*loop_.replica, state_.epoch_metric_sums.data());
  report.loss_scale = LossScale(result.skipped);
  report.compute_seconds = result.compute_seconds;
  report.wait_seconds = result.wait_seconds;
  report.total_seconds = report.step_seconds = Seconds(Clock::now() - step_start_);
  report.input_seconds = std::min(result.input_seconds, report.step_seconds);
  for (Observer* observer : observers()) observer->OnStep(report);
  Tables();
  Summary(Split::kTrain, result.summary);
}

void LoopReports::Measure(const StepResult& result, int64_t local_examples) const {
  TaskMeter* const meter = loop_.context.meter;
  if (meter == nullptr) return;
  meter->AddExamples(local_examples);
  if (loop_.first_local()) meter->AddStep(result.wait_seconds, result.input_seconds);
}

// An exported program has a graph of its own. It says more than the one that autograd recorded.
void LoopReports::Graph(std::vector<summary::GraphNode> of_losses) const {
  if (!observed()) return;
  const auto* source = dynamic_cast<const GraphSource*>(&loop_.replica->program());
  const auto nodes = source == nullptr ? std::move(of_losses) : source->ForwardGraph();
  if (nodes.empty()) return;
  for (Observer* observer : observers())
    if (auto* wants = dynamic_cast<GraphObserver*>(observer)) wants->OnGraph(state_.step, nodes);
}

void LoopReports::LeftOut(Split split, const DamagedExamples::Report& left_out) const {
  if (!loop_.reporter() || left_out.count == 0) return;
  for (Observer* observer : observers())
    observer->OnLeftOut(SplitName(split), left_out.count, left_out.names);
}

void LoopReports::Epoch() {
  if (loop_.reporter()) {
    Metrics(Split::kTrain, state_.epoch_examples, Seconds(Clock::now() - epoch_start_),
            TrainMetrics(*loop_.replica, state_));
    SummaryData shown;
    if (!observers().empty())
      shown.images = MetricImages(*loop_.replica, state_.epoch_metric_sums.data());
    Summary(Split::kTrain, shown);
    Parameters();
  }
  epoch_start_ = Clock::now();
}

std::function<void(int64_t, int64_t)> LoopReports::PassProgress(Split split) const {
  if (!loop_.reporter()) return nullptr;
  return [this, split](int64_t done, int64_t total) {
    for (Observer* observer : observers())
      observer->OnEvaluateProgress(SplitName(split), done, total);
  };
}

void LoopReports::Pass(Split split, const PassResult& pass, MonotonicTime start) const {
  if (!loop_.reporter()) return;
  LeftOut(split, pass.left_out);
  Summary(split, pass.summary);
  Metrics(split, pass.examples, Seconds(Clock::now() - start), pass.metrics);
}

void LoopReports::Finish() const {
  if (!loop_.reporter()) return;
  for (Observer* observer : observers()) observer->OnFinish(state_.step);
}

void LoopReports::SaveBegins() const {
  if (!loop_.reporter()) return;
  for (Observer* observer : observers()) observer->OnSave(state_.step);
}

void LoopReports::Tables() const {
  const LocalEmbeddings& tables = loop_.replica->tables();
  if (tables.size() == 0 || observers().empty()) return;
  TablesReport report;
  report.step = state_.step;
  for (int t = 0; t < tables.size(); ++t)
    report.tables.emplace_back(loop_.replica->embeddings()[t].name, tables.table(t).statistics());
  for (Observer* observer : observers()) observer->OnTables(report);
}

void LoopReports::Metrics(Split split, int64_t examples, double seconds,
                          const std::map<std::string, double>& metrics) const {
  EpochReport report;
  report.split = SplitName(split);
  report.epoch = state_.last_epoch();
  report.step = state_.step;
  report.examples = examples;
  report.metrics = metrics;
  report.seconds = seconds;
  for (Observer* observer : observers()) observer->OnEpoch(report);
}

void LoopReports::Summary(Split split, const SummaryData& summary) const {
  for (ImageReport images : summary.images) {
    images.step = state_.step;
    for (Observer* observer : observers()) observer->OnImages(SplitName(split), images);
  }
  for (HistogramReport histogram : summary.histograms) {
    histogram.step = state_.step;
    for (Observer* observer : observers()) observer->OnHistogram(SplitName(split), histogram);
  }
}

void LoopReports::Parameters() const {
  const int64_t every = loop_.context.job.summary.histograms_every_epochs;
  if (every == 0 || (state_.last_epoch() + 1) % every != 0 || observers().empty()) return;
  for (const auto& [name, parameter] : NamedParameters(*loop_.replica)) {
    HistogramReport report = MakeHistogram("parameters/" + name, parameter);
    report.step = state_.step;
    for (Observer* observer : observers()) observer->OnHistogram(SplitName(Split::kTrain), report);
  }
}

}  // namespace muster
