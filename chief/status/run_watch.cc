#include "chief/status/run_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/json/utf8.h"
#include "common/base/peer_text.h"

namespace muster::chief {
namespace {

constexpr size_t kMaxEventBytes = 500;

// Returns the prefix of a split's metrics, such as "val_". Those of training have none.
std::string PrefixOf(const std::string& split) {
  if (split == "train") return "";
  return split == "validation" ? "val_" : split + "_";
}

}  // namespace

RunWatch::RunWatch(RunWatchOptions options) {
  absl::MutexLock lock(&mu_);
  progress_.set_program(ValidUtf8(options.program));
  progress_.set_strategy(ValidUtf8(options.strategy));
  progress_.set_model_dir(ValidUtf8(options.model_dir));
  progress_.set_seconds_left(-1);
}

void RunWatch::OnStart(const StartReport& report) {
  absl::MutexLock lock(&mu_);
  progress_.set_program(ValidUtf8(report.program));
  progress_.set_step(report.start_step);
  progress_.set_total_steps(report.total_steps);
  progress_.set_epochs(report.epochs);
  progress_.set_global_batch_size(report.global_batch_size);
  progress_.set_split("train");
  rate_ = RateMeter();
  curves_.Rewind(report.start_step);
}

void RunWatch::OnStep(const StepReport& report) {
  absl::MutexLock lock(&mu_);
  rate_.Add(report.examples, report.total_seconds, report.wait_seconds);
  curves_.Add(report.step, report.loss, report.examples, report.total_seconds);
  progress_.set_step(report.step);
  progress_.set_total_steps(report.total_steps);
  progress_.set_epoch(report.epoch);
  if (progress_.split() != "train") progress_.set_split("train");
  progress_.set_examples_per_second(rate_.examples_per_second());
  progress_.set_learning_rate(report.learning_rate);
  const double rate = rate_.steps_per_second();
  progress_.set_seconds_left(
      report.total_steps > 0 && rate > 0
          ? static_cast<double>(std::max<int64_t>(report.total_steps - report.step, 0)) / rate
          : -1);
  auto& metrics = *progress_.mutable_metrics();
  for (const auto& [name, value] : report.values) metrics[ValidUtf8(name)] = value;
  for (const auto& [name, value] : report.metrics) metrics[ValidUtf8(name)] = value;
  if (!report.metrics.contains("loss")) metrics["loss"] = report.loss;
}

void RunWatch::OnEpoch(const EpochReport& report) {
  absl::MutexLock lock(&mu_);
  const std::string prefix = PrefixOf(report.split);
  for (const auto& [name, value] : report.metrics)
    (*progress_.mutable_metrics())[ValidUtf8(prefix + name)] = value;
}

void RunWatch::OnEvaluateProgress(const std::string& split, int64_t /*done*/, int64_t /*total*/) {
  absl::MutexLock lock(&mu_);
  if (progress_.split() != split) progress_.set_split(split);
}

void RunWatch::OnEvaluation(const std::map<std::string, double>& metrics) {
  absl::MutexLock lock(&mu_);
  for (const auto& [name, value] : metrics)
    (*progress_.mutable_metrics())[ValidUtf8("eval_" + name)] = value;
}

void RunWatch::OnCheckpoint(int64_t step, const std::string& path) {
  proto::RunEvent event;
  event.set_kind(proto::RunEvent::CHECKPOINT);
  event.set_step(step);
  event.set_text(fmt::format("checkpoint of step {} is complete", step));
  absl::MutexLock lock(&mu_);
  progress_.set_checkpoint(ValidUtf8(path));
  progress_.set_checkpoint_step(step);
  saved_at_ = Clock::now();
  KeepLocked(std::move(event));
}

void RunWatch::OnEvent(proto::RunEvent event) {
  absl::MutexLock lock(&mu_);
  if (event.step() < 0 && progress_.step() > 0) event.set_step(progress_.step());
  KeepLocked(std::move(event));
}

void RunWatch::OnStraggler(const TaskId& task, bool straggler) {
  proto::RunEvent event;
  event.set_kind(proto::RunEvent::STRAGGLER);
  event.set_task(task.ToString());
  event.set_step(-1);
  event.set_text(task.DisplayName() + (straggler ? " is a straggler: the others wait for it"
                                                 : " is no longer a straggler"));
  OnEvent(std::move(event));
}

void RunWatch::KeepLocked(proto::RunEvent event) {
  event.set_text(SanitizePeerText(event.text(), kMaxEventBytes));
  events_.push_back({std::move(event), Clock::now()});
  if (events_.size() > kMaxEvents) events_.pop_front();
  ++newest_;
}

proto::RunEvent RunWatch::Aged(const Event& event, MonotonicTime now) {
  proto::RunEvent aged = event.event;
  aged.set_age_seconds(Seconds(now - event.at));
  return aged;
}

void RunWatch::Describe(proto::StatusReply* reply) const {
  const MonotonicTime now = Clock::now();
  absl::MutexLock lock(&mu_);
  proto::RunProgress& progress = *reply->mutable_progress() = progress_;
  if (!progress.checkpoint().empty()) progress.set_checkpoint_age_seconds(Seconds(now - saved_at_));
  for (const Event& event : events_) *reply->add_events() = Aged(event, now);
}

std::vector<proto::RunEvent> RunWatch::EventsSince(uint64_t* last) const {
  const MonotonicTime now = Clock::now();
  absl::MutexLock lock(&mu_);
  const uint64_t missing = newest_ - std::min(*last, newest_);
  std::vector<proto::RunEvent> events;
  for (size_t i = events_.size() - std::min<uint64_t>(missing, events_.size()); i < events_.size();
       ++i)
    events.push_back(Aged(events_[i], now));
  *last = newest_;
  return events;
}

Curves::News RunWatch::CurvesSince(CurveCursor* cursor) const {
  absl::MutexLock lock(&mu_);
  return curves_.Since(cursor);
}

}  // namespace muster::chief
