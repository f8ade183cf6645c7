#include "common/membership/action_executor.h"

#include <utility>
#include <variant>

#include "common/membership/member_messages.h"

namespace muster::membership {
namespace {

constexpr Duration kFailureAckTimeout =
    std::chrono::seconds(1);  // Time for the end of the last session.

MemberRecordsOptions RecordsOptions(const MemberOptions& options,
                                    const std::shared_ptr<rpc::RenewableChannel>& channel,
                                    std::function<void()> on_idle) {
  MemberRecordsOptions records{
      .task = options.task, .host = options.host.name, .pid = options.host.pid};
  if (channel) records.uploader.channel = [channel] { return channel->Get(); };
  records.uploader.cluster_digest = options.cluster_digest;
  records.uploader.fallback_folder = options.flight_folder;
  records.uploader.on_idle = std::move(on_idle);
  return records;
}

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};

}  // namespace

ActionExecutor::ActionExecutor(const MemberOptions& options, uint64_t incarnation,
                               const std::shared_ptr<rpc::RenewableChannel>& channel,
                               Callbacks callbacks)
    : options_(options),
      incarnation_(incarnation),
      channel_(channel),
      records_(RecordsOptions(options, channel,
                              [on_event = callbacks.on_event] { on_event(RecordsDelivered{}); })) {
  if (channel == nullptr) return;
  session_ = std::make_unique<ChiefSession>(
      channel, options.channel.retry, incarnation,
      ChiefSession::Callbacks{
          .on_message = std::move(callbacks.on_message),
          .on_closed = [on_event = std::move(callbacks.on_event)](SessionClosed event) {
            on_event(std::move(event));
          }});
}

bool ActionExecutor::Do(const MemberAction& action, const MemberState& state, PausingTime now) {
  FlightRecorder& recorder = *records_.recorder();
  return std::visit(
      Overloaded{[&](const OpenSession&) {
                   session_->Open(HelloOf(options_, incarnation_, state));
                   return true;
                 },
                 [&](const CancelSession&) {
                   session_->Cancel();
                   return true;
                 },
                 [&](const SendReport&) {
                   // The chief waits neither for a member that has acknowledged nor for its record.
                   const bool acknowledged = state.verdict.has_value() && !records_.busy();
                   proto::Report report =
                       ReportOf(state, now, recorder.CurrentPosition(), acknowledged);
                   AddStats(&report);
                   session_->Send(report);
                   return true;
                 },
                 [&](const AbortCommunicators& abort) {
                   communicators_.Abort(abort.why);
                   return true;
                 },
                 [&](const SubmitRecord& record) {
                   records_.Enqueue(record, state.welcome ? state.welcome->run_id : "");
                   return true;
                 },
                 [&](const ChiefReached&) {
                   session_->Reached();
                   records_.Retry();
                   return true;
                 },
                 [&](const NoteGeneration&) {
                   std::string members;
                   for (const RosterMember& member : state.roster->members)
                     members += (members.empty() ? "" : ", ") + member.task;
                   recorder.EnterGeneration(state.generation, members);
                   StartTraces();
                   return true;
                 },
                 [&](const NotePhase&) {
                   recorder.EnterPhase(state.report.phase, state.report.step);
                   return true;
                 },
                 [&](const Note& note) {
                   recorder.Note(note.kind, note.detail);
                   return true;
                 },
                 [](const auto&) { return false; }},
      action);
}

void ActionExecutor::AddStats(proto::Report* report) {
  // Slightly shorter than the interval of heartbeats, so that each heartbeat has statistics.
  constexpr Duration kInterval = std::chrono::milliseconds(900);
  const MonotonicTime now = Clock::now();
  if (!options_.stats || now - stats_sent_ < kInterval) return;
  stats_sent_ = now;
  options_.stats(report->mutable_stats());
}

void ActionExecutor::StartTraces() {
  if (traces_ != nullptr || options_.spans == nullptr || channel_ == nullptr) return;
  TraceClientOptions traces;
  traces.channel = [channel = channel_] { return channel->Get(); };
  traces.task = options_.task;
  traces.cluster_digest = options_.cluster_digest;
  traces.host = options_.host.name;
  traces.pid = options_.host.pid;
  traces.recorder = options_.spans;
  traces_ = std::make_unique<TraceClient>(std::move(traces));
}

void ActionExecutor::Close() {
  traces_.reset();   // A trace in progress receives the spans so far.
  records_.Close();  // Needs the session, so that the chief waits.
  if (session_) session_->Close(kFailureAckTimeout);
}

}  // namespace muster::membership
