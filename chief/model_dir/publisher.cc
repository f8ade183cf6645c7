#include "chief/model_dir/publisher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <filesystem>
#include <utility>

#include "common/base/files/created_files.h"
#include "common/base/logging.h"
#include "common/summary/graph_def.h"
#include "common/summary/hyperparameters.h"

namespace muster::chief {
namespace {

using Kind = ProgressState::Kind;

constexpr const char* kHistory = "/recovery.json";

// Returns the resolved job as Markdown.
std::string JobText(const Json& job) { return fmt::format("```json\n{}\n```\n", Dump(job, 2)); }

// Returns the models as Markdown: a table of all parameters, with totals per model.
std::string ModelText(const StartReport& report) {
  std::string text = "| model | parameter | shape | count | trainable |\n|---|---|---|---:|---|\n";
  int64_t all = 0, trainable = 0;
  for (const ParameterReport& p : report.parameters) {
    int64_t count = 1;
    for (int64_t size : p.shape) count *= size;
    all += count;
    if (p.trainable) trainable += count;
    const std::string shape =
        p.shape.empty() ? "scalar" : fmt::format("{}", fmt::join(p.shape, " x "));
    text += fmt::format("| {} | {} | {} | {} | {} |\n", p.model, p.name, shape,
                        FormatGrouped(count), p.trainable ? "yes" : "no");
  }
  text += fmt::format("\n{} parameters, of which {} are trained.\n", FormatGrouped(all),
                      FormatGrouped(trainable));
  if (report.parameter_counts.size() < 2) return text;
  text += "\n";  // A Markdown list needs an empty line before it.
  for (const auto& [model, count] : report.parameter_counts)
    text += fmt::format("- {}: {}\n", model, FormatGrouped(count));
  return text;
}

}  // namespace

Publisher::Publisher(PublisherOptions options)
    : options_(std::move(options)),
      files_(options_.fence, options_.term),
      history_(options_.independent) {
  if (!options_.model_dir.empty() && options_.summary_every_steps > 0)
    folders_ = std::make_unique<RunFolders>(RunFolders::Options{.model_dir = options_.model_dir,
                                                                .fence = options_.fence,
                                                                .check_disk = options_.check_disk});
}

std::unique_ptr<Publisher> Publisher::Open(PublisherOptions options) {
  return std::unique_ptr<Publisher>(new Publisher(std::move(options)));
}

absl::Status Publisher::Begin(bool continues, bool has_begun) {
  absl::MutexLock lock(&mu_);
  begun_ = true;
  if (options_.model_dir.empty()) return absl::OkStatus();
  const std::string verdict = options_.model_dir + "/result.json";
  AddJobFolder(options_.model_dir);
  if (const int error = MakeFolders(options_.model_dir); error != 0) {
    return ConfigurationError(
        fmt::format("cannot make model_dir {}: {}", options_.model_dir, std::strerror(error)));
  }
  MUSTER_RETURN_IF_ERROR(files_.Check());
  if (continues || has_begun) {
    const auto earlier = ReadJsonFile(verdict);
    if (continues && earlier.ok()) record_.Continue(*earlier);
    const auto history = ReadJsonFile(options_.model_dir + kHistory);
    if (history.ok())
      history_.Continue(*history, /*killed=*/!earlier.ok(), options_.silent_seconds, Clock::now());
  }
  MUSTER_RETURN_IF_ERROR(files_.Remove(verdict));
  MUSTER_RETURN_IF_ERROR(files_.Write(options_.model_dir + "/job.json", options_.job));
  WriteHistoryLocked();
  return absl::OkStatus();
}

void Publisher::OnLost(const std::string& task, const std::string& why) {
  history_.OnLost(task, why, Clock::now());
}

// If this write fails, the history still goes into result.json, unless this chief is lost first.
void Publisher::WriteHistoryLocked() {
  if (options_.model_dir.empty() || !begun_) return;
  const absl::Status kept = files_.Write(options_.model_dir + kHistory, history_.ToJson());
  if (!kept.ok() && !absl::IsAborted(kept)) LogDebug("{}", Message(kept));
}

// ---- Training

void Publisher::OnStart(const StartReport& report) {
  absl::MutexLock lock(&mu_);
  if (finished_) return;
  start_ = report;
  history_.OnStart(report.start_step, Clock::now());
  WriteHistoryLocked();
  if (report.start_step != last_step_) {
    steps_in_epoch_ = skipped_in_epoch_ = 0;
    epoch_input_ = InputWait();
  }
  last_step_ = report.start_step;
  record_.OnStart(report);
  if (folders_ != nullptr) LogOnceLocked(folders_->OnStart(report));
  if (!started_once_) DescribeLocked(report);
  started_once_ = true;
  if (folders_ != nullptr) CatchUpLocked(report);
  for (const auto& [step, metrics] : std::exchange(early_, {}))
    SummarizeEvaluationLocked(step, metrics);
}

// Publishes the points of the step from which training resumes and of the passes at this step, if
// they are missing. The previous chief may have been lost before it published them.
void Publisher::CatchUpLocked(const StartReport& report) {
  const int64_t step = report.start_step;
  if (report.last_step && step % options_.summary_every_steps == 0 &&
      folders_->LastStepOf("train", "loss") < step)
    SummarizeLocked(*report.last_step);
  if (report.last_step && !report.train_metrics.empty() &&
      folders_->LastStepOf("train", "epoch_loss") < step)
    SummarizePassLocked("train", step, report.train_metrics);
  for (const EpochReport& pass : report.passes) {
    if (pass.metrics.empty()) continue;
    const std::string tag = "epoch_" + pass.metrics.begin()->first;
    if (folders_->LastStepOf(pass.split, tag) < pass.step)
      SummarizePassLocked(pass.split, pass.step, pass.metrics);
  }
}

void Publisher::DescribeLocked(const StartReport& report) {
  summary::EventWriter* writer = WriterLocked("train", report.start_step);
  if (writer == nullptr) return;
  LogOnceLocked(writer->Text(report.start_step, "job", JobText(options_.job)));
  if (!report.parameters.empty())
    LogOnceLocked(writer->Text(report.start_step, "model", ModelText(report)));
  LogOnceLocked(writer->PluginData(
      report.start_step, summary::kSessionStartTag, summary::kHyperparametersPlugin,
      summary::SessionStart(summary::Hyperparameters(options_.job), WallSeconds())));
  LogOnceLocked(writer->Flush());
}

void Publisher::OnGraph(int64_t step, const std::vector<summary::GraphNode>& nodes) {
  absl::MutexLock lock(&mu_);
  if (finished_) return;
  if (summary::EventWriter* writer = WriterLocked("train", step))
    LogOnceLocked(writer->Graph(step, summary::GraphDefOf(nodes)));
}

// Writes how the run ended, with the last metrics of each split, as columns of TensorBoard's table
// of hyperparameters. A run that another process may continue has not ended.
void Publisher::SummarizeEndLocked(const absl::Status& verdict) {
  const ExitCode code = ExitCodeOf(verdict);
  if (code == ExitCode::kRetryable || code == ExitCode::kPreempted || !started_once_) return;
  summary::EventWriter* writer = WriterLocked("train", last_step_);
  if (writer == nullptr) return;
  summary::EventWriter::Values values;
  for (const auto& [split, metrics] : last_metrics_)
    for (const auto& [name, value] : metrics)
      values.emplace_back(fmt::format("final/{}/{}", split, name), value);
  if (!values.empty()) LogOnceLocked(writer->Scalars(last_step_, values));
  LogOnceLocked(writer->PluginData(last_step_, summary::kSessionEndTag,
                                   summary::kHyperparametersPlugin,
                                   summary::SessionEnd(verdict.ok(), WallSeconds())));
}

void Publisher::OnStep(const StepReport& report) {
  absl::MutexLock lock(&mu_);
  if (finished_) return;
  record_.OnStep(report);
  if (history_.OnStep(report.step, Clock::now())) WriteHistoryLocked();
  recent_.Add(report.examples, report.total_seconds, report.wait_seconds);
  epoch_ = report.epoch;
  last_step_ = report.step;
  if (report.loss_scale) LogSkippedLocked(report);
  if (options_.progress != nullptr) ShowLocked(report);
  examples_since_summary_ += report.examples;
  seconds_since_summary_ += report.total_seconds;
  input_since_summary_ += report.input_seconds;
  steps_since_summary_ += report.step_seconds;
  epoch_input_.Add(report);
  if (folders_ != nullptr && report.step % options_.summary_every_steps == 0)
    SummarizeLocked(report);
  // With parameter servers, norms may come at other steps than the summary steps. Only the
  // completion of a batch decides which step it is.
  if (folders_ != nullptr && !report.gradient_norms.empty()) {
    summary::EventWriter::Values norms;
    for (const auto& [optimizer, norm] : report.gradient_norms)
      norms.emplace_back("gradient_norm/" + optimizer, norm);
    if (summary::EventWriter* writer = WriterLocked("train", report.step))
      LogOnceLocked(writer->Scalars(report.step, norms));
  }
}

void Publisher::LogSkippedLocked(const StepReport& report) {
  const auto& [scale, all, skipped] = *report.loss_scale;
  const double before = std::exchange(loss_scale_, scale);
  ++steps_in_epoch_;
  if (!skipped) return;
  ++skipped_in_epoch_;
  if (scale <= kMinLossScale && before != scale) {
    LogWarning(
        "step {} is skipped: its float16 gradients are not finite, and the loss scale is at its "
        "minimum, {}; {} skipped steps in a row end the job",
        report.step, kMinLossScale, kMaxSkippedSteps);
    return;
  }
  // Logs the first, the tenth, the hundredth and so on.
  int64_t power = 1;
  while (power < all) power *= 10;
  if (power != all) return;
  LogInfo("step {} is skipped: its float16 gradients are not finite{}; the loss scale is {} now",
          report.step,
          all == 1 ? ", as those of the first steps of a run often are until the loss scale fits"
                   : fmt::format(" ({} steps by now)", all),
          scale);
}

void Publisher::LogSkippedInEpochLocked(const EpochReport& report) {
  if (skipped_in_epoch_ > 0)
    LogInfo("epoch {}: {} of {} steps were skipped (float16); the loss scale is {}",
            report.epoch + 1, skipped_in_epoch_, steps_in_epoch_, loss_scale_);
  steps_in_epoch_ = skipped_in_epoch_ = 0;
}

void Publisher::ShowLocked(const StepReport& report) {
  ProgressState state;
  state.epoch = report.epoch;
  state.epochs = start_.epochs;
  state.step = report.step;
  state.total_steps = report.total_steps;
  state.done = report.step_in_epoch;
  state.total = report.steps_per_epoch;
  state.examples_per_second = recent_.examples_per_second();
  // A single member waits for no other.
  if (start_.num_replicas > 1) state.wait_share = recent_.wait_share();
  if (report.total_steps > 0 && recent_.steps_per_second() > 0) {
    state.seconds_left =
        static_cast<double>(report.total_steps - report.step) / recent_.steps_per_second();
  }
  state.metrics = report.metrics;
  state.metrics.insert(report.values.begin(), report.values.end());
  state.metrics.emplace("loss", report.loss);  // Has no effect if the running mean is present.
  options_.progress->Show(state);
}

void Publisher::SummarizeLocked(const StepReport& report) {
  summary::EventWriter::Values values = {{"loss", report.loss},
                                         {"learning_rate", report.learning_rate}};
  if (seconds_since_summary_ > 0) {
    values.emplace_back("examples_per_second",
                        static_cast<double>(examples_since_summary_) / seconds_since_summary_);
  }
  if (steps_since_summary_ > 0)
    values.emplace_back("input_wait_share", input_since_summary_ / steps_since_summary_);
  for (const auto& [optimizer, rate] : report.learning_rates)
    values.emplace_back("learning_rate/" + optimizer, rate);
  if (report.loss_scale) {
    values.emplace_back("loss_scale", report.loss_scale->scale);
    values.emplace_back("skipped_steps", static_cast<double>(report.loss_scale->skipped_steps));
  }
  values.insert(values.end(), report.values.begin(), report.values.end());
  examples_since_summary_ = 0;
  seconds_since_summary_ = 0;
  input_since_summary_ = steps_since_summary_ = 0;
  if (summary::EventWriter* writer = WriterLocked("train", report.step))
    LogOnceLocked(writer->Scalars(report.step, values));
}

// ---- Passes

void Publisher::OnEpoch(const EpochReport& report) {
  absl::MutexLock lock(&mu_);
  if (finished_) return;
  record_.OnEpoch(report);
  history_.OnProgress(Clock::now());
  if (report.split == "train") LogSkippedInEpochLocked(report);
  SummarizePassLocked(report.split, report.step, report.metrics);
  const double input_share = InputShareLocked(report);
  if (options_.progress != nullptr) ShowEpochLocked(report, input_share);
}

double Publisher::InputShareLocked(const EpochReport& report) {
  if (report.split != "train") return -1;
  const InputWait epoch = std::exchange(epoch_input_, InputWait(0));
  if (!epoch.any()) return -1;
  const double share = epoch.Share();
  // In runs of less than a second the share does not matter.
  if (share >= kMuchInputWait && epoch.Seconds() >= 1 && !std::exchange(logged_input_, true)) {
    const auto data = options_.job.is_object() ? options_.job.value("data", Json()) : Json();
    LogWarning("epoch {}: {}", report.epoch + 1, InputWaitHint(share, data));
  }
  return share;
}

void Publisher::OnFinish(int64_t /*step*/) {
  absl::MutexLock lock(&mu_);
  record_.OnFinish();
}

void Publisher::ShowEpochLocked(const EpochReport& report, double input_share) {
  ProgressState state;
  state.kind = Kind::kEpoch;
  state.split = report.split;
  state.epoch = report.epoch;
  state.epochs = start_.epochs;
  state.step = report.step;
  state.metrics = report.metrics;
  state.seconds = report.seconds;
  state.input_share = input_share;
  if (report.seconds > 0) {
    state.examples_per_second = static_cast<double>(report.examples) / report.seconds;
  }
  options_.progress->Show(state);
}

void Publisher::SummarizePassLocked(const std::string& folder, int64_t step,
                                    const std::map<std::string, double>& metrics) {
  summary::EventWriter* writer = WriterLocked(folder, step);
  if (writer == nullptr) return;
  last_metrics_[folder] = metrics;
  summary::EventWriter::Values values;
  for (const auto& [name, value] : metrics) values.emplace_back("epoch_" + name, value);
  LogOnceLocked(writer->Scalars(step, values));
  LogOnceLocked(writer->Flush());
}

void Publisher::OnText(int64_t step, const std::string& tag, const std::string& text) {
  absl::MutexLock lock(&mu_);
  if (finished_) return;
  if (summary::EventWriter* writer = WriterLocked("train", step))
    LogOnceLocked(writer->Text(step, tag, text));
}

void Publisher::OnCallback(const std::string& name, const Json& note) {
  absl::MutexLock lock(&mu_);
  record_.OnCallback(name, note);
}

void Publisher::OnLeftOut(const std::string& split, int64_t examples,
                          const std::vector<std::string>& names) {
  absl::MutexLock lock(&mu_);
  record_.OnLeftOut(split, examples, names);
}

void Publisher::OnEvaluateProgress(const std::string& split, int64_t done, int64_t total) {
  absl::MutexLock lock(&mu_);
  history_.OnProgress(Clock::now());
  if (finished_ || options_.progress == nullptr) return;
  ProgressState state;
  state.kind = Kind::kEvaluate;
  state.split = split;
  state.epoch = epoch_;
  state.epochs = start_.epochs;
  state.step = last_step_;
  state.done = done;
  state.total = total;
  options_.progress->Show(state);
}

void Publisher::OnEvaluation(int64_t step, const std::map<std::string, double>& metrics) {
  absl::MutexLock lock(&mu_);
  if (finished_) return;
  if (started_once_)
    SummarizeEvaluationLocked(step, metrics);
  else
    early_[step] = metrics;
}

void Publisher::SummarizeEvaluationLocked(int64_t step,
                                          const std::map<std::string, double>& metrics) {
  record_.OnEvaluation(step, metrics);
  if (folders_ == nullptr) return;
  // Skips evaluations that were published before. A restarted evaluator repeats earlier ones. With
  // a new chief, the evaluator begins with the checkpoint from which that chief resumed.
  int64_t last = folders_->last_step("eval");
  if (last < 0 && !metrics.empty())
    last = folders_->LastStepOf("eval", "epoch_" + metrics.begin()->first);
  if (step > last) SummarizePassLocked("eval", step, metrics);
}

// ---- What programs show

void Publisher::OnImages(const std::string& split, const ImageReport& report) {
  absl::MutexLock lock(&mu_);
  if (summary::EventWriter* writer = WriterLocked(split, report.step)) {
    LogOnceLocked(writer->Images(
        report.step, report.tag,
        {report.count, report.height, report.width, report.channels, report.pixels}));
  }
}

void Publisher::OnHistogram(const std::string& split, const HistogramReport& report) {
  absl::MutexLock lock(&mu_);
  if (summary::EventWriter* writer = WriterLocked(split, report.step)) {
    LogOnceLocked(writer->Histogram(report.step, report.tag, report.distribution));
  }
}

void Publisher::OnScalars(const std::string& split, const ScalarReport& report) {
  absl::MutexLock lock(&mu_);
  if (summary::EventWriter* writer = WriterLocked(split, report.step))
    LogOnceLocked(writer->Scalars(report.step, report.values));
}

void Publisher::OnTables(const TablesReport& report) {
  absl::MutexLock lock(&mu_);
  if (finished_) return;
  record_.OnTables(report);
  if (folders_ == nullptr || report.step % options_.summary_every_steps != 0) return;
  // The last report of parameter servers repeats a step.
  if (std::exchange(tables_step_, report.step) == report.step) return;
  summary::EventWriter::Values values;
  for (const auto& [name, statistics] : report.tables)
    for (const auto& [what, count] : CountsOf(statistics))
      values.emplace_back(fmt::format("embeddings/{}/{}", name, what), static_cast<double>(count));
  if (summary::EventWriter* writer = WriterLocked("train", report.step))
    LogOnceLocked(writer->Scalars(report.step, values));
}

// ---- Files

void Publisher::SetParameterServer(Json counts) {
  absl::MutexLock lock(&mu_);
  parameter_server_ = std::move(counts);
}

void Publisher::OnSave(int64_t /*step*/) {
  absl::MutexLock lock(&mu_);
  if (!finished_ && folders_ != nullptr) LogOnceLocked(folders_->Flush());
}

summary::EventWriter* Publisher::WriterLocked(const std::string& folder, int64_t step) {
  if (finished_ || folders_ == nullptr) return nullptr;
  const auto writer = folders_->At(folder, step);
  LogOnceLocked(writer.status());
  return writer.ok() ? *writer : nullptr;
}

void Publisher::LogOnceLocked(const absl::Status& status) {
  if (status.ok() || summaries_fail_) return;
  // The owner reports that this chief was superseded.
  if (!absl::IsAborted(status))
    LogWarning("{}; training continues, and the event files are tried again", Message(status));
  summaries_fail_ = true;
}

absl::Status Publisher::Finish(const absl::Status& verdict, const CheckpointRecord& checkpoints) {
  absl::MutexLock lock(&mu_);
  if (finished_) return absl::OkStatus();
  SummarizeEndLocked(verdict);
  finished_ = true;
  if (options_.progress != nullptr) options_.progress->Show({.kind = Kind::kEnd});
  if (options_.model_dir.empty()) return absl::OkStatus();
  MUSTER_RETURN_IF_ERROR(files_.Check());
  if (folders_ != nullptr) LogOnceLocked(folders_->Sync());
  const std::string path = options_.model_dir + "/result.json";
  std::error_code error;
  if (!begun_ && std::filesystem::exists(path, error)) return absl::OkStatus();
  history_.OnEnd(Clock::now());
  WriteHistoryLocked();
  return files_.Write(path, record_.Result({.verdict = verdict,
                                            .generations = history_.generations(),
                                            .recovery = history_.ToJson(),
                                            .wall_seconds = Seconds(Clock::now() - started_),
                                            .checkpoints = checkpoints,
                                            .parameter_server = parameter_server_,
                                            .hardware = options_.hardware,
                                            .versions = options_.versions}));
}

}  // namespace muster::chief
