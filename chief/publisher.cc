#include "chief/publisher.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "common/base/logging.h"

namespace muster {

using Kind = ProgressState::Kind;

std::unique_ptr<Publisher> Publisher::Open(PublisherOptions options) {
  return std::unique_ptr<Publisher>(new Publisher(std::move(options)));
}

absl::Status Publisher::Begin(bool goes_on) {
  begun_ = true;
  if (options_.model_dir.empty()) return absl::OkStatus();
  const std::string verdict = options_.model_dir + "/result.json";
  std::error_code error;
  std::filesystem::create_directories(options_.model_dir, error);
  if (error) {
    return ConfigurationError(
        fmt::format("cannot make model_dir {}: {}", options_.model_dir, error.message()));
  }
  if (options_.fence) MUSTER_RETURN_IF_ERROR(options_.fence());
  if (goes_on) {
    if (const auto earlier = ReadJsonFile(verdict); earlier.ok()) record_.Continue(*earlier);
  }
  std::filesystem::remove(verdict, error);
  return WriteJsonFile(options_.model_dir + "/job.json", options_.job);
}

void Publisher::OnStart(const StartReport& report) {
  start_ = report;
  record_.OnStart(report);
  if (options_.model_dir.empty() || options_.summary_every_steps <= 0) return;
  // A later generation goes on where the one before it stopped, and in the same file; one that
  // starts further back needs a new file, which voids the steps in between.
  if (train_ != nullptr && report.start_step >= last_step_) return;
  auto writer = summary::EventWriter::Open(options_.model_dir + "/train",
                                           {.first_step = report.start_step + 1});
  if (writer.ok()) train_ = *std::move(writer);
  SayOnce(writer.status());
}

void Publisher::OnStep(const StepReport& report) {
  record_.OnStep(report);
  recent_.Add(report.examples, report.total_seconds, report.wait_seconds);
  epoch_ = report.epoch;
  last_step_ = report.step;
  if (options_.progress != nullptr) Show(report);
  examples_since_summary_ += report.examples;
  seconds_since_summary_ += report.total_seconds;
  if (train_ != nullptr && report.step % options_.summary_every_steps == 0) Summarize(report);
}

void Publisher::Show(const StepReport& report) {
  ProgressState state;
  state.epoch = report.epoch;
  state.epochs = start_.epochs;
  state.step = report.step;
  state.total_steps = report.total_steps;
  state.done = report.step_in_epoch;
  state.total = report.steps_per_epoch;
  state.examples_per_second = recent_.examples_per_second();
  // One member waits for nobody.
  if (start_.num_replicas > 1) state.wait_share = recent_.wait_share();
  if (report.total_steps > 0 && recent_.steps_per_second() > 0) {
    state.seconds_left =
        static_cast<double>(report.total_steps - report.step) / recent_.steps_per_second();
  }
  state.metrics = report.metrics;
  state.metrics.insert(report.values.begin(), report.values.end());
  state.metrics.emplace("loss", report.loss);  // unless the running mean is there
  options_.progress->Show(state);
}

void Publisher::Summarize(const StepReport& report) {
  summary::EventWriter::Values values = {{"loss", report.loss},
                                         {"learning_rate", report.learning_rate}};
  if (seconds_since_summary_ > 0) {
    values.emplace_back("examples_per_second",
                        static_cast<double>(examples_since_summary_) / seconds_since_summary_);
  }
  values.insert(values.end(), report.values.begin(), report.values.end());
  examples_since_summary_ = 0;
  seconds_since_summary_ = 0;
  SayOnce(train_->Scalars(report.step, values));
}

void Publisher::SayOnce(const absl::Status& status) {
  if (!status.ok() && !summaries_fail_) {
    LogWarning("{}; training goes on without", Message(status));
    summaries_fail_ = true;
  }
}

void Publisher::OnEpoch(const EpochReport& report) {
  record_.OnEpoch(report);
  if (report.split == "train" && train_ != nullptr) SayOnce(train_->Flush());
  if (options_.progress == nullptr) return;
  ProgressState state;
  state.kind = Kind::kEpoch;
  state.split = report.split;
  state.epoch = report.epoch;
  state.epochs = start_.epochs;
  state.step = report.step;
  state.metrics = report.metrics;
  state.seconds = report.seconds;
  if (report.seconds > 0) {
    state.examples_per_second = static_cast<double>(report.examples) / report.seconds;
  }
  options_.progress->Show(state);
}

void Publisher::OnEvaluateProgress(const std::string& split, int64_t done, int64_t total) {
  if (options_.progress == nullptr) return;
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

absl::Status Publisher::Finish(const absl::Status& verdict, int64_t generations,
                               const CheckpointRecord& checkpoints) {
  if (options_.progress != nullptr) options_.progress->Show({.kind = Kind::kEnd});
  if (options_.model_dir.empty()) return absl::OkStatus();
  if (options_.fence) MUSTER_RETURN_IF_ERROR(options_.fence());
  if (train_ != nullptr) SayOnce(train_->Flush());
  const std::string path = options_.model_dir + "/result.json";
  std::error_code error;
  if (!begun_ && std::filesystem::exists(path, error)) return absl::OkStatus();
  return WriteJsonFile(path, record_.Result({.verdict = verdict,
                                             .generations = generations,
                                             .wall_seconds = Seconds(Clock::now() - started_),
                                             .checkpoints = checkpoints,
                                             .hardware = options_.hardware,
                                             .versions = options_.versions}));
}

}  // namespace muster
