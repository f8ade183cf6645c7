#include "evaluator/follower.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "common/cluster/verdict.h"
#include "common/rpc/host.h"
#include "evaluator/fetched_checkpoint.h"

namespace muster::evaluator {
namespace {

// Calls Pause on the heartbeat when the function returns.
struct EndOfWork {
  Heartbeat* heartbeat;
  ~EndOfWork() { heartbeat->Pause(); }
};

// Returns the result of Follower::Run for the end of the job.
absl::Status StatusOfEnd(const proto::JobEnd& end) {
  const ExitCode code = ExitCodeFromInt(end.exit_code());
  return code == ExitCode::kDone ? absl::OkStatus() : StatusFor(code, end.message());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Follower>> Follower::Make(FollowerOptions options) {
  std::unique_ptr<Follower> follower(new Follower(std::move(options)));
  MUSTER_ASSIGN_OR_RETURN(follower->link_, ChiefLink::Make(follower->options_.link));
  follower->heartbeat_ = std::make_unique<Heartbeat>(
      follower->link_.get(), [raw = follower.get()](const proto::JobEnd& end) {
        if (raw->options_.on_ending) raw->options_.on_ending(StatusOfEnd(end));
      });
  return follower;
}

void Follower::Stop() {
  if (link_->stopped()) return;
  link_->Stop();
  if (options_.on_ending)
    options_.on_ending(Preempted("stopped as asked; training is not concerned"));
  // Sent here, because Run may be in code that does not return soon.
  link_->NotifyLeaving("it was asked to stop");
}

absl::Status Follower::OwnFailure(const absl::Status& failure) const {
  Verdict verdict;
  verdict.code = ExitCodeOf(failure) == ExitCode::kConfiguration ? ExitCode::kConfiguration
                                                                 : ExitCode::kRetryable;
  verdict.task = options_.link.task;
  verdict.host = rpc::ThisHost().name;
  verdict.step = step_;
  verdict.phase = step_ < 0 ? Phase::kStarting : Phase::kEvaluate;
  verdict.message = Message(failure);
  return StatusOf(verdict, options_.link.task, /*is_chief=*/false);
}

absl::Status Follower::Run() {
  const absl::Status status = Follow();
  if (link_->stopped()) return Preempted("stopped as asked; training is not concerned");
  if (const auto end = heartbeat_->end()) return StatusOfEnd(*end);
  return status;
}

// Called if the chief has exited without waiting for this process, which joined late or was
// suspended.
absl::Status Follower::Finished(const absl::Status& why) const {
  LogInfo("{}", Message(why));
  return absl::OkStatus();
}

// Returns when no further checkpoints can come.
absl::Status Follower::Follow() {
  bool want_job = true;
  while (true) {
    auto reply = link_->NextCheckpoint(state_.after_step, want_job);
    if (absl::IsAlreadyExists(reply.status())) return Finished(reply.status());
    if (!reply.ok()) return OwnFailure(reply.status());
    want_job = false;
    absl::Status failure;
    switch (NextMove(*reply, &state_)) {
      case Move::kEnd:
        return StatusOfEnd(reply->end());
      case Move::kAskJob:
        want_job = true;
        break;
      case Move::kPrepare:
        failure = Prepare();
        break;
      case Move::kEvaluate:
        failure = Evaluate(reply->checkpoint());
        break;
      case Move::kAsk:
        break;
    }
    if (link_->stopped() || heartbeat_->end()) return absl::OkStatus();  // Run returns the reason.
    if (absl::IsAlreadyExists(failure)) return Finished(failure);
    if (!failure.ok()) {
      link_->NotifyLeaving(std::string(Message(failure)));
      // Later failures of the evaluator must not fail a job.
      return OwnFailure(PeerLost(Message(failure)));
    }
    step_ = -1;
  }
}

absl::Status Follower::Prepare() {
  const EndOfWork end{heartbeat_.get()};
  heartbeat_->Begin(-1);
  const absl::Status prepared = options_.prepare(state_.job);
  nothing_ = absl::IsNotFound(prepared) ? std::string(Message(prepared)) : "";
  if (nothing_.empty()) {
    MUSTER_RETURN_IF_ERROR(prepared);
  } else {
    // This is not a failure, and a restart would not help.
    LogWarning("{}", nothing_);
  }
  state_.prepared = true;
  LogInfo("following the checkpoints of run {}", state_.run_id);
  return absl::OkStatus();
}

absl::StatusOr<checkpoint::Snapshot> Follower::Read(const proto::Announcement& announced) {
  MUSTER_ASSIGN_OR_RETURN(const FetchedCheckpoint checkpoint,
                          FetchedCheckpoint::Get(*options_.files, *link_, announced));
  if (checkpoint.fetched())
    LogInfo("{} is not on this host at {}: it was fetched from the chief", announced.name(),
            announced.path());
  return checkpoint::ReadCheckpoint(*options_.files, checkpoint.path());
}

absl::Status Follower::Evaluate(const proto::Announcement& announced) {
  const EndOfWork end{heartbeat_.get()};
  step_ = announced.step();
  heartbeat_->Begin(step_);
  state_.after_step = step_;
  const auto cancelled = [this] { return link_->stopped() || heartbeat_->futile(); };

  proto::EvaluationReport report;
  report.set_step(step_);
  report.set_done(true);
  if (!nothing_.empty()) {
    report.set_failure(nothing_);
    return SendReport(report, announced.name());
  }
  absl::StatusOr<checkpoint::Snapshot> snapshot = Read(announced);
  if (!snapshot.ok()) {
    if (cancelled()) {
      NotDone();
      return absl::OkStatus();
    }
    LogWarning("{} is not evaluated: {}", announced.name(), Message(snapshot.status()));
    report.set_failure(std::string(Message(snapshot.status())));
    return SendReport(report, announced.name());
  }
  FollowerOptions::Hooks hooks;
  hooks.cancelled = cancelled;
  hooks.progress = [this](int64_t done, int64_t total) { heartbeat_->Progress(done, total); };
  const absl::StatusOr<Evaluated> evaluated = options_.evaluate(*snapshot, hooks);
  if (cancelled()) {
    if (!link_->stopped() && !heartbeat_->end())
      LogWarning("the evaluation of {} was cancelled: the chief does not know it",
                 announced.name());
    NotDone();
    return absl::OkStatus();
  }
  MUSTER_RETURN_IF_ERROR(evaluated.status());
  report.mutable_metrics()->insert(evaluated->metrics.begin(), evaluated->metrics.end());
  report.set_examples(evaluated->examples);
  report.set_seconds(evaluated->seconds);
  std::string text;
  for (const auto& [name, value] : evaluated->metrics)
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : ", ", name, value);
  LogInfo("{}{}: {} ({} examples in {:.3g} s)", announced.name(),
          announced.final() ? ", the final one" : "", text, evaluated->examples,
          evaluated->seconds);
  return SendReport(report, announced.name());
}

absl::Status Follower::SendReport(const proto::EvaluationReport& report, const std::string& name) {
  const auto reply = link_->SendReport(report);
  MUSTER_RETURN_IF_ERROR(reply.status());
  if (!reply->known() && !reply->has_end()) {
    LogWarning("the chief does not know {}: its metrics are dropped", name);
    NotDone();
  }
  return absl::OkStatus();
}

}  // namespace muster::evaluator
