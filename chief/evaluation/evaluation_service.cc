#include "chief/evaluation/evaluation_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/evaluation/checkpoint_stream.h"
#include "chief/evaluation/evaluation_call.h"
#include "common/base/files/crc32c.h"
#include "common/base/logging.h"
#include "common/base/peer_text.h"
#include "common/base/wait.h"
#include "common/cluster/protocol.h"
#include "common/rpc/server/server.h"

namespace muster::chief {
namespace {

// Time for which the chief stays, so that a live evaluator receives the end.
constexpr Duration kEndTimeout = std::chrono::seconds(5);
constexpr size_t kMaxName = 256;
constexpr size_t kMaxHeld = 16;  // Limit of held calls. An evaluator makes two at a time.
// Interval of log lines about what the chief waits for.
constexpr Duration kWaitingLine = std::chrono::seconds(10);

using CallPtr = std::shared_ptr<EvaluationCall>;

std::string MetricsText(const std::map<std::string, double>& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics)
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : ", ", name, value);
  return text.empty() ? "no metrics" : text;
}

// Events in the order in which they happened.
struct Event {
  CallPtr call;         // A new call. Null if the event is a broken connection.
  uint64_t broken = 0;  // The incarnation with the broken connection.
};

class ServiceImpl final : public EvaluationService,
                          public EvaluationCall::Handler,
                          public proto::Evaluation::CallbackService {
 public:
  explicit ServiceImpl(EvaluationServiceOptions options)
      : options_(std::move(options)),
        incarnation_(std::random_device{}()),
        streams_(options_.files) {
    thread_ = std::thread([this] { Run(); });
  }
  ~ServiceImpl() override {
    {
      absl::MutexLock lock(&mu_);
      exiting_ = true;
      WakeLocked();
    }
    thread_.join();
  }

  grpc::Service* service() override { return this; }
  void Announce(int64_t step, const std::string& name, const std::string& path,
                bool final) override;
  void AwaitFinal() override;
  void StopWaiting() override;
  void End(const Verdict& verdict) override;

  // From EvaluationCall::Handler.
  void OnCall(CallPtr call) override;
  void OnBroken(uint64_t incarnation) override;
  void OnEndDelivered(uint64_t incarnation) override;

  // From proto::Evaluation.
  grpc::ServerUnaryReactor* Next(grpc::CallbackServerContext* context,
                                 const proto::NextCheckpointRequest* request,
                                 proto::NextCheckpointReply* reply) override;
  grpc::ServerUnaryReactor* Report(grpc::CallbackServerContext* context,
                                   const proto::EvaluationReport* request,
                                   proto::EvaluationReply* reply) override;
  grpc::ServerWriteReactor<proto::FetchChunk>* Fetch(grpc::CallbackServerContext* context,
                                                     const proto::FetchRequest* request) override;

 private:
  template <typename Request, typename Reply>
  grpc::ServerUnaryReactor* Open(grpc::CallbackServerContext* context, const char* name,
                                 const Request* request, Reply* reply);

  // Requests of other threads, which the service's thread takes all at once.
  struct Work {
    std::vector<proto::Announcement> announced;
    std::deque<Event> events;
    bool wait = false, stop_waiting = false, exiting = false;
    std::optional<Verdict> end;
  };

  // ---- Called by the service's thread, without mu_
  void Run();
  Work TakeWork();
  void TakeAnnouncement(proto::Announcement announcement);
  void TakeCall(PausingTime now, const CallPtr& call);
  grpc::Status Admit(PausingTime now, const proto::EvaluatorIdentity& who);
  bool TryAnswer(PausingTime now, EvaluationCall& call);
  bool TryAnswerNext(PausingTime now, EvaluationCall& call);
  bool TryAnswerReport(PausingTime now, EvaluationCall& call);
  void TakeReport(const proto::EvaluationReport& report);
  void TakeResult(const proto::EvaluationReport& report);
  bool PinStep(int64_t step);
  void Release();
  void Leave();
  void CheckDeadlines(PausingTime now);
  void LogWaiting(PausingTime now);
  bool SetEnd(proto::JobEnd* end) const;
  std::string Who() const;

  void WakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    woken_ = true;
    wake_.Signal();
  }

  const EvaluationServiceOptions options_;
  const uint64_t incarnation_;

  // Only the service's thread uses this member and the members below.
  PausingClock clock_;
  EvaluationState state_;
  proto::Announcement newest_;            // The announcement of state_.newest.
  std::map<int64_t, std::string> paths_;  // The paths of all announced checkpoints, by step.
  int64_t kept_ = -1;                     // The step that is pinned.
  // The evaluator works on an earlier checkpoint of this step.
  int64_t outdated_ = -1;
  std::vector<CallPtr> held_;
  std::string last_failure_;  // The same failure is logged once.
  LogRateLimiter lines_;
  std::optional<Verdict> ended_;
  bool stop_waiting_ = false;
  PausingTime next_line_;

  CheckpointStreams streams_;
  absl::Mutex mu_;
  CondVar wake_, changed_;
  Work work_ ABSL_GUARDED_BY(mu_);
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  // The part of the thread's state that others may read.
  bool final_over_ ABSL_GUARDED_BY(mu_) = false;
  bool end_received_ ABSL_GUARDED_BY(mu_) = false;  // The thread has received the call of End.
  uint64_t present_ ABSL_GUARDED_BY(mu_) = 0;       // The evaluator's incarnation; 0: none.
  bool end_delivered_ ABSL_GUARDED_BY(mu_) = false;
  int64_t streamable_ ABSL_GUARDED_BY(mu_) = -1;  // The step whose files may be fetched.
  std::string streamable_path_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
};

// ---- Called by other threads

void ServiceImpl::Announce(int64_t step, const std::string& name, const std::string& path,
                           bool final) {
  proto::Announcement announcement;
  announcement.set_step(step);
  announcement.set_name(name);
  announcement.set_path(path);
  announcement.set_final(final);
  absl::MutexLock lock(&mu_);
  work_.announced.push_back(std::move(announcement));
  WakeLocked();
}

void ServiceImpl::AwaitFinal() {
  absl::MutexLock lock(&mu_);
  work_.wait = true;
  WakeLocked();
  while (!final_over_ && !exiting_) changed_.Wait(&mu_);  // Bounded by EvaluationRules.
}

void ServiceImpl::StopWaiting() {
  absl::MutexLock lock(&mu_);
  work_.stop_waiting = true;
  WakeLocked();
}

void ServiceImpl::End(const Verdict& verdict) {
  const MonotonicTime until = Clock::now() + kEndTimeout;
  absl::MutexLock lock(&mu_);
  work_.end = verdict;
  WakeLocked();
  while (!exiting_ && !(end_received_ && (end_delivered_ || present_ == 0)))
    if (changed_.WaitUntil(&mu_, until)) return;
}

void ServiceImpl::OnCall(CallPtr call) {
  absl::MutexLock lock(&mu_);
  work_.events.push_back({std::move(call), 0});
  WakeLocked();
}

void ServiceImpl::OnBroken(uint64_t incarnation) {
  absl::MutexLock lock(&mu_);
  work_.events.push_back({nullptr, incarnation});
  WakeLocked();
}

void ServiceImpl::OnEndDelivered(uint64_t incarnation) {
  absl::MutexLock lock(&mu_);
  if (incarnation == present_) end_delivered_ = true;
  changed_.SignalAll();
}

template <typename Request, typename Reply>
grpc::ServerUnaryReactor* ServiceImpl::Open(grpc::CallbackServerContext* context, const char* name,
                                            const Request* request, Reply* reply) {
  grpc::Status refusal = rpc::RequireDeadline(*context, name);
  if (refusal.ok()) refusal = rpc::RequireSpeaker(*context, request->evaluator().task());
  if (!refusal.ok()) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(refusal);
    return reactor;
  }
  return EvaluationCall::Open(this, request, reply);
}

grpc::ServerUnaryReactor* ServiceImpl::Next(grpc::CallbackServerContext* context,
                                            const proto::NextCheckpointRequest* request,
                                            proto::NextCheckpointReply* reply) {
  return Open(context, "Next", request, reply);
}

grpc::ServerUnaryReactor* ServiceImpl::Report(grpc::CallbackServerContext* context,
                                              const proto::EvaluationReport* request,
                                              proto::EvaluationReply* reply) {
  return Open(context, "Report", request, reply);
}

grpc::ServerWriteReactor<proto::FetchChunk>* ServiceImpl::Fetch(
    grpc::CallbackServerContext* context, const proto::FetchRequest* request) {
  if (const grpc::Status refusal = rpc::RequireDeadline(*context, "Fetch"); !refusal.ok())
    return RefuseStream(refusal);
  const std::string& file = request->file();
  if (file.empty() || file.front() == '.' || file.find('/') != std::string::npos)
    return RefuseStream(
        grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                     fmt::format("'{}' is no file of a checkpoint", SanitizePeerText(file, 100))));
  std::string path;
  {
    absl::MutexLock lock(&mu_);
    if (request->step() != streamable_)
      return RefuseStream(grpc::Status(
          grpc::StatusCode::FAILED_PRECONDITION,
          fmt::format("the checkpoint of step {} is not being evaluated", request->step())));
    path = fmt::format("{}/{}", streamable_path_, file);
  }
  return streams_.Open(context, path);
}

// ---- The service's thread

ServiceImpl::Work ServiceImpl::TakeWork() {
  absl::MutexLock lock(&mu_);
  if (!woken_) wake_.WaitFor(&mu_, options_.tick);
  woken_ = false;
  Work work = std::move(work_);
  work_ = Work();
  work.exiting = exiting_;
  return work;
}

void ServiceImpl::Run() {
  while (true) {
    Work work = TakeWork();
    const PausingTime now = clock_.Now();
    for (proto::Announcement& announcement : work.announced)
      TakeAnnouncement(std::move(announcement));
    if (work.end) ended_ = std::move(work.end);
    if (work.wait && !state_.waiting_since) {
      state_.waiting_since = now;
      // A chief restored at the last step has published nothing more, so the newest checkpoint is
      // final.
      state_.final_announced = true;
      newest_.set_final(true);
    }
    stop_waiting_ = stop_waiting_ || work.stop_waiting;
    for (const Event& event : work.events) {
      if (event.call != nullptr) {
        TakeCall(now, event.call);
      } else if (state_.evaluator.present && event.broken == state_.evaluator.incarnation) {
        state_.evaluator.broken_at = now;
      }
    }
    std::erase_if(held_, [&](const CallPtr& call) { return TryAnswer(now, *call); });
    CheckDeadlines(now);
    if (work.exiting) {
      for (const CallPtr& call : held_)
        call->Answer(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the chief ends"));
      return Release();
    }
  }
}

void ServiceImpl::TakeAnnouncement(proto::Announcement announcement) {
  const int64_t step = announcement.step();
  if (state_.newest && step < *state_.newest) return;
  const auto manifest = ReadFile(*options_.files, announcement.path() + "/manifest.json");
  if (!manifest.ok()) {
    LogWarning("{} is not announced to the evaluator: {}", announcement.name(),
               Message(manifest.status()));
    return;
  }
  announcement.set_manifest_checksum(fmt::format("{:08x}", Crc32c(*manifest)));
  // This is another state of the same step, which callbacks may leave at the end of training.
  // Finished and running evaluations do not apply to it.
  if (state_.newest == step && newest_.manifest_checksum() != announcement.manifest_checksum()) {
    state_.settled.erase(step);
    if (kept_ == step) {
      Release();
      outdated_ = step;
    }
  }
  paths_[step] = announcement.path();
  // A final checkpoint stays final, even if it is announced again.
  state_.final_announced =
      announcement.final() || (state_.newest == step && state_.final_announced);
  announcement.set_final(state_.final_announced);
  state_.newest = step;
  newest_ = std::move(announcement);
}

grpc::Status ServiceImpl::Admit(PausingTime now, const proto::EvaluatorIdentity& who) {
  const auto refuse = [](const std::string& why) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, why);
  };
  if (who.protocol() != kControlProtocol)
    return refuse(fmt::format("{} speaks protocol {}, the chief {}: start all tasks from one build",
                              TaskText(SanitizePeerText(who.task(), kMaxName)), who.protocol(),
                              kControlProtocol));
  if (who.cluster_digest() != options_.cluster_digest)
    return refuse(
        fmt::format("{} was started with another cluster than the chief: give all tasks the same "
                    "chief, workers and ps in TF_CONFIG",
                    TaskText(SanitizePeerText(who.task(), kMaxName))));
  EvaluatorState& evaluator = state_.evaluator;
  if (!evaluator.present || evaluator.incarnation != who.incarnation()) {
    if (!IsVacant(now, evaluator, options_.rules))
      return grpc::Status(grpc::StatusCode::UNAVAILABLE,
                          fmt::format("another process is {} already, on host {} (pid {})",
                                      TaskText(evaluator.task), evaluator.host, evaluator.pid));
    Leave();
    evaluator = EvaluatorState();
    evaluator.present = true;
    evaluator.task = SanitizePeerText(who.task(), kMaxName);
    evaluator.host = SanitizePeerText(who.host(), kMaxName);
    evaluator.pid = who.pid();
    evaluator.incarnation = who.incarnation();
    if (!ended_) LogInfo("{} follows the checkpoints", Who());
    absl::MutexLock lock(&mu_);
    present_ = evaluator.incarnation;
    end_delivered_ = false;
  }
  evaluator.last_heard = now;
  evaluator.broken_at.reset();
  return grpc::Status::OK;
}

void ServiceImpl::TakeCall(PausingTime now, const CallPtr& call) {
  if (const grpc::Status refusal = Admit(now, call->who()); !refusal.ok()) {
    if (refusal.error_code() == grpc::StatusCode::INVALID_ARGUMENT)
      if (int64_t left_out = 0; lines_.Take(&left_out))
        LogWarning("refused {} on host {}: {}",
                   TaskText(SanitizePeerText(call->who().task(), kMaxName)),
                   SanitizePeerText(call->who().host(), kMaxName),
                   SanitizePeerText(refusal.error_message()));
    return call->Answer(refusal);
  }
  if (call->report != nullptr) TakeReport(*call->report);
  // The evaluator is idle, because it asks for a checkpoint.
  if (call->next != nullptr) outdated_ = -1;
  call->taken = now;
  held_.push_back(call);
  if (held_.size() <= kMaxHeld) return;
  held_.front()->Answer(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                     fmt::format("{} calls wait here", kMaxHeld)));
  held_.erase(held_.begin());
}

// Returns true if the call was answered.
bool ServiceImpl::TryAnswer(PausingTime now, EvaluationCall& call) {
  if (call.broken()) {
    call.Answer(grpc::Status::CANCELLED);
    return true;
  }
  return call.next != nullptr ? TryAnswerNext(now, call) : TryAnswerReport(now, call);
}

bool ServiceImpl::TryAnswerNext(PausingTime now, EvaluationCall& call) {
  proto::NextCheckpointReply& reply = *call.next_reply;
  reply.set_run_id(options_.run_id());
  reply.set_chief_incarnation(incarnation_);
  const bool ended = SetEnd(reply.mutable_end());
  if (!ended) {
    reply.clear_end();
    if (call.next->want_job()) {
      reply.set_job(options_.job);
    } else if (OffersNewest(state_, call.next->after_step())) {
      if (PinStep(*state_.newest)) {
        *reply.mutable_checkpoint() = newest_;
      } else {
        state_.settled.insert(*state_.newest);  // The checkpoint was deleted.
      }
    }
  }
  const bool said = ended || call.next->want_job() || reply.has_checkpoint();
  if (!said && now - call.taken < options_.hold) return false;
  if (!reply.has_checkpoint()) Release();  // The evaluator is idle.
  call.Answer(grpc::Status::OK, ended);
  return true;
}

bool ServiceImpl::TryAnswerReport(PausingTime now, EvaluationCall& call) {
  proto::EvaluationReply& reply = *call.report_reply;
  const proto::EvaluationReport& report = *call.report;
  const int64_t step = report.step();
  reply.set_known(step < 0 || state_.settled.contains(step) || kept_ == step);
  const bool ended = SetEnd(reply.mutable_end());
  if (!ended) reply.clear_end();
  const bool said = ended || !reply.known() || report.done() || !report.leaving().empty();
  if (!said && now - call.taken < options_.hold) return false;
  call.Answer(grpc::Status::OK, ended);
  return true;
}

bool ServiceImpl::SetEnd(proto::JobEnd* end) const {
  if (!ended_) return false;
  end->set_exit_code(static_cast<int>(ended_->code));
  end->set_message(FinalLine(*ended_, state_.evaluator.task, /*is_chief=*/false));
  return true;
}

void ServiceImpl::TakeReport(const proto::EvaluationReport& report) {
  EvaluatorState& evaluator = state_.evaluator;
  // The reply will say that the checkpoint is unknown. The evaluator then stops, and gets the
  // step's current checkpoint next.
  const bool outdated = report.step() >= 0 && report.step() == outdated_;
  if (report.done() && !outdated) {
    TakeResult(report);
  } else if (report.step() >= 0 && !outdated && !state_.settled.contains(report.step())) {
    evaluator.step = report.step();
    evaluator.batches_done = report.batches_done();
    evaluator.batches_total = report.batches_total();
    // Pins the checkpoint again if the chief was restarted or had given up the evaluator.
    PinStep(report.step());
  }
  if (report.leaving().empty()) return;
  if (!ended_)
    LogWarning("{} left, and the job continues without it: {}", Who(),
               SanitizePeerText(report.leaving()));
  Leave();
}

void ServiceImpl::TakeResult(const proto::EvaluationReport& report) {
  const int64_t step = report.step();
  const auto path = paths_.find(step);
  state_.evaluator.step = -1;
  if (path == paths_.end() || state_.settled.contains(step)) return;
  const std::string name = path->second.substr(path->second.rfind('/') + 1);
  if (!report.failure().empty()) {
    if (report.failure() != last_failure_)
      LogWarning("{} could not evaluate {}: {}", Who(), name, SanitizePeerText(report.failure()));
    last_failure_ = report.failure();
  } else {
    EvaluationResult result;
    result.step = step;
    result.metrics = {report.metrics().begin(), report.metrics().end()};
    result.examples = report.examples();
    result.seconds = report.seconds();
    LogInfo("{} was evaluated: {} ({} examples in {:.3g} s)", name, MetricsText(result.metrics),
            result.examples, result.seconds);
    if (options_.on_metrics) options_.on_metrics(result);
  }
  state_.settled.insert(step);
  Release();
}

// Pins the checkpoint of `step` instead of the previous one. Returns false if it is gone.
bool ServiceImpl::PinStep(int64_t step) {
  if (kept_ == step) return true;
  const auto path = paths_.find(step);
  if (path == paths_.end() || !options_.pin(step)) return false;
  Release();
  kept_ = step;
  absl::MutexLock lock(&mu_);
  streamable_ = step;
  streamable_path_ = path->second;
  return true;
}

void ServiceImpl::Release() {
  if (kept_ < 0) return;
  {
    absl::MutexLock lock(&mu_);
    streamable_ = -1;
  }
  options_.unpin(kept_);
  kept_ = -1;
}

// Handles the loss of the evaluator.
void ServiceImpl::Leave() {
  state_.evaluator.present = false;
  Release();
  absl::MutexLock lock(&mu_);
  present_ = 0;
  changed_.SignalAll();
}

std::string ServiceImpl::Who() const {
  return fmt::format("{} on host {}", TaskText(state_.evaluator.task), state_.evaluator.host);
}

void ServiceImpl::CheckDeadlines(PausingTime now) {
  if (const std::string lost = WhyLost(now, state_.evaluator, options_.rules); !lost.empty()) {
    if (!ended_) LogWarning("{} is lost, and the job continues without it: {}", Who(), lost);
    Leave();
  }
  bool over = false;
  if (state_.waiting_since) {
    const FinalWait wait = DecideFinalWait(now, state_, options_.rules);
    over = wait.over || stop_waiting_ || ended_.has_value();
    if (over && state_.final_announced && !wait.reason.empty()) LogWarning("{}", wait.reason);
    if (!over) LogWaiting(now);
  }
  absl::MutexLock lock(&mu_);
  if (over) final_over_ = true;
  if (ended_) end_received_ = true;
  if (over || ended_) changed_.SignalAll();
}

void ServiceImpl::LogWaiting(PausingTime now) {
  if (now < next_line_) return;
  next_line_ = now + kWaitingLine;
  const EvaluatorState& e = state_.evaluator;
  const std::string how_far =
      e.batches_total == 0
          ? ""
          : fmt::format(" (step {}: {} of {} batches)", e.step, e.batches_done, e.batches_total);
  LogInfo("the chief waits for {} to evaluate {}{}", TaskText(e.task), newest_.name(), how_far);
}

}  // namespace

std::unique_ptr<EvaluationService> EvaluationService::Make(EvaluationServiceOptions options) {
  return std::make_unique<ServiceImpl>(std::move(options));
}

}  // namespace muster::chief
