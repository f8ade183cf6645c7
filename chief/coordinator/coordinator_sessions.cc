// Handles the messages of members' sessions, and the unary RPCs.
#include <fmt/format.h>

#include <algorithm>

#include "chief/coordinator/admission/convert.h"
#include "chief/coordinator/admission/peer_limits.h"
#include "chief/coordinator/coordinator_impl.h"
#include "common/base/logging.h"

namespace muster::chief {
namespace {

constexpr size_t kMaxGreeting = 256;  // Limit of sessions without a Hello.

// A task reports its own failure. Only its launcher reports that a process is gone.
grpc::Status RequireReporter(const grpc::ServerContextBase& context,
                             const proto::FailureReport& report) {
  if (!report.gone()) return rpc::RequireSpeaker(context, report.task());
  const std::optional<security::Peer> caller = rpc::CallerOf(context);
  if (!caller || caller->task == "launcher") return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                      fmt::format("{} may not report that {} is gone", caller->task,
                                  SanitizePeerText(report.task(), 100)));
}

}  // namespace

// ---- sessions ----

int CoordinatorImpl::MemberOfLocked(const chief::Session* session) const {
  const int member = session->member;  // Another session of the member may have replaced this one.
  return member >= 0 && state_.slots[member].session.get() == session ? member : -1;
}

void CoordinatorImpl::OnMessage(const std::shared_ptr<chief::Session>& session,
                                const proto::MemberMessage& message) {
  if (message.has_hello()) return OnHello(session, message.hello());
  absl::MutexLock lock(&mu_);
  const int member = MemberOfLocked(session.get());
  if (member >= 0 && message.has_report()) ReportLocked(member, message.report());
}

// Checks the Hello before taking the lock, so that heartbeats of other members are not delayed.
void CoordinatorImpl::OnHello(const std::shared_ptr<chief::Session>& session,
                              const proto::Hello& said) {
  {
    // Only the first Hello of a session counts.
    absl::MutexLock lock(&mu_);
    if (greeting_.erase(session) == 0) return;
  }
  if (const auto& caller = session->caller(); caller && caller->task != said.task()) {
    const std::string why =
        fmt::format("{} may not speak for {}", caller->task, SanitizePeerText(said.task(), 100));
    if (int64_t left_out = 0; refused_lines_.Take(&left_out))
      LogWarning("closed a session: {}", why);
    return session->Close(grpc::Status(grpc::StatusCode::PERMISSION_DENIED, why));
  }
  proto::Hello hello = said;
  CleanText(&hello);
  if (const std::string wrong = ProblemWith(hello); !wrong.empty()) {
    const std::string why = fmt::format("the Hello of {} is invalid: {}",
                                        TaskText(SanitizePeerText(hello.task(), 100)), wrong);
    if (int64_t left_out = 0; refused_lines_.Take(&left_out))
      LogWarning("closed a session: {}", why);
    return session->Close(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, why));
  }
  const Differences differences = DifferencesOf(hello, options_.admission);
  absl::MutexLock lock(&mu_);
  if (session->broken) return;  // The session broke during the check.
  registration_.OnHello(session, hello, differences);
}

void CoordinatorImpl::OnBroken(const std::shared_ptr<chief::Session>& session) {
  absl::MutexLock lock(&mu_);
  greeting_.erase(session);
  session->broken = true;
  const int member = MemberOfLocked(session.get());
  if (member < 0) return;
  state_.slots[member].session = nullptr;
  state_.job.members[member].process.connected = false;
  state_.job.members[member].process.broken_at = state_.clock.Now();
  state_.Wake();
}

void CoordinatorImpl::ReportLocked(int member, const proto::Report& report) {
  MemberInfo& m = state_.job.members[member];
  // A plain heartbeat is handled at the next tick.
  if (ApplyReport(report, state_.clock.Now(), &m)) state_.Wake();
  if (report.has_stats()) state_.stats.Keep(member, report.stats(), m.report.step);
  if (report.stop_requested()) actions_.Stop();
  if (report.leave_requested() && !m.report.leaving) {
    m.report.leaving = true;
    state_.Wake();
  }
  state_.slots[member].session->SendIfIdle(state_.job.stop_requested ? stop_pulse_ : pulse_);
}

// ---- RPCs ----

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* CoordinatorImpl::Session(
    grpc::CallbackServerContext* context) {
  const auto session = chief::Session::Make(this, context);
  {
    absl::MutexLock lock(&mu_);
    MakeRoomForSessionLocked();
    greeting_.emplace(session, state_.clock.Now());
  }
  session->Begin();
  return session.get();
}

// Ends the oldest session without a Hello. Real members send theirs at once.
void CoordinatorImpl::MakeRoomForSessionLocked() {
  const size_t most = std::max<size_t>(kMaxGreeting, 2 * state_.slots.size());
  if (greeting_.size() < most) return;
  const auto oldest =
      std::min_element(greeting_.begin(), greeting_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto session = oldest->first;
  greeting_.erase(oldest);
  session->Close(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                              fmt::format("{} sessions have sent no Hello", most)));
}

// Ends sessions that send no Hello in time. No other timeout covers them.
void CoordinatorImpl::EndWithoutHelloLocked(PausingTime now) {
  for (auto it = greeting_.begin(); it != greeting_.end();) {
    const auto [session, since] = *it;
    if (now - since < options_.hello) {
      ++it;
      continue;
    }
    it = greeting_.erase(it);
    session->Close(
        grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                     fmt::format("a session without a Hello for {:g} s", Seconds(options_.hello))));
  }
}

grpc::ServerUnaryReactor* CoordinatorImpl::ReportFailure(grpc::CallbackServerContext* context,
                                                         const proto::FailureReport* request,
                                                         proto::FailureReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  grpc::Status refusal = rpc::RequireDeadline(*context, "ReportFailure");
  if (refusal.ok()) refusal = RequireReporter(*context, *request);
  if (refusal.ok()) {
    proto::FailureReport report = *request;
    CleanText(&report);
    absl::MutexLock lock(&mu_);
    bool try_again = false;
    reply->set_reason(state_.job.stage == JobStage::kEnding
                          ? "the job has ended already"
                          : state_.TakeFailure(report, &try_again));
    reply->set_try_again(try_again);
    reply->set_accepted(reply->reason().empty());
  }
  reactor->Finish(refusal);
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorImpl::Status(grpc::CallbackServerContext* context,
                                                  const proto::StatusRequest*,
                                                  proto::StatusReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const grpc::Status refusal = rpc::RequireDeadline(*context, "Status");
  if (refusal.ok()) *reply = Describe();
  reactor->Finish(refusal);
  return reactor;
}

proto::StatusReply CoordinatorImpl::Describe() {
  proto::StatusReply reply;
  {
    absl::MutexLock lock(&mu_);
    const PausingTime now = state_.clock.Now();
    reply.set_run_id(state_.admission.run_id);
    reply.set_stage(std::string(StageName(state_.job.stage)));
    reply.set_generation(state_.job.generation);
    reply.set_uptime_seconds(Seconds(now - state_.job.started));
    reply.set_roster(RosterLine(now, state_.job));
    for (int i = 0; i < static_cast<int>(state_.job.members.size()); ++i) {
      proto::MemberStatus* const member = reply.add_members();
      *member = StatusOfMember(state_.job.members[i], now);
      state_.stats.AddTo(i, member);
    }
    if (state_.job.stage == JobStage::kEnding)
      *reply.mutable_verdict() = VerdictToProto(state_.job.verdict);
  }
  if (options_.describe) options_.describe(&reply);
  return reply;
}

}  // namespace muster::chief
