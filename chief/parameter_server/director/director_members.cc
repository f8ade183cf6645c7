#include "chief/parameter_server/director/director_members.h"

#include <fmt/format.h>

#include <utility>

#include "common/rpc/server/server.h"

namespace muster::chief {
namespace {

// The longest time that the director's thread waits for an event.
constexpr Duration kTick = std::chrono::milliseconds(100);

template <typename Request, typename Reply>
grpc::ServerUnaryReactor* Open(typename LeaseCall<Request, Reply>::Handler* handler,
                               grpc::CallbackServerContext* context, const char* name,
                               const Request* request, Reply* reply) {
  grpc::Status refusal = rpc::RequireDeadline(*context, name);
  if (refusal.ok())
    refusal = rpc::RequireSpeaker(*context, fmt::format("worker:{}", request->worker().worker()));
  if (!refusal.ok()) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(refusal);
    return reactor;
  }
  return UnaryLeaseCall<Request, Reply>::Open(handler, request, reply);
}

}  // namespace

// ---- Access

DirectorMembers::Lock::Lock(DirectorMembers* members) : members_(members) { members->mu_.Lock(); }

// The members of this object, the answers among them, are destroyed after the mutex is released.
DirectorMembers::Lock::~Lock() { members_->mu_.Unlock(); }

DirectorState& DirectorMembers::Lock::operator*() {
  members_->mu_.AssertHeld();
  return members_->state_;
}

void DirectorMembers::Lock::AnswerHeld() {
  members_->mu_.AssertHeld();
  members_->state_.calls().AnswerHeld(Clock::now(), &answers_);
}

void DirectorMembers::Lock::AwaitEvent() {
  members_->mu_.AssertHeld();
  if (!members_->woken_) AwaitChange();
  members_->woken_ = false;
}

void DirectorMembers::Lock::AwaitChange() {
  members_->mu_.AssertHeld();
  members_->wake_.WaitFor(&members_->mu_, kTick);
}

void DirectorMembers::WakeLocked() {
  woken_ = true;
  wake_.SignalAll();
}

// ---- Called by the director and its owner

void DirectorMembers::Prepare(std::vector<std::unique_ptr<ShardClient>> clients,
                              LeaseCalls::Program program, push_pull::IntegerBuffers integers,
                              int64_t copies) {
  ServerLinks::Handler* const handler = this;
  links_ = std::make_unique<ServerLinks>(std::move(clients), handler);
  absl::MutexLock lock(&mu_);
  state_.Prepare(std::move(program), std::move(integers), copies, links_.get());
}

void DirectorMembers::StopLinks() {
  if (links_ != nullptr) links_->Stop();
}

void DirectorMembers::Abort(const absl::Status& why) {
  absl::MutexLock lock(&mu_);
  state_.Fail(why);
  WakeLocked();
  state_.CancelCalls();
}

void DirectorMembers::Wake() {
  absl::MutexLock lock(&mu_);
  WakeLocked();
}

// ---- The coordinator's events

void DirectorMembers::OnAdmitted(const AdmittedMember& member) {
  Answers answers;
  absl::MutexLock lock(&mu_);
  state_.Admit(member);
  WakeLocked();
  state_.calls().AnswerHeld(Clock::now(), &answers);
}

void DirectorMembers::OnLost(const TaskId& task, uint64_t incarnation, const std::string& why,
                             bool ended) {
  Answers answers;
  absl::MutexLock lock(&mu_);
  if (!state_.Lose(task, incarnation, why, ended)) return;
  WakeLocked();
  state_.calls().AnswerHeld(Clock::now(), &answers);
}

void DirectorMembers::OnStopRequested() {
  absl::MutexLock lock(&mu_);
  state_.RequestStop();
  WakeLocked();
}

// ---- Calls of workers

grpc::ServerUnaryReactor* DirectorMembers::Next(grpc::CallbackServerContext* context,
                                                const proto::NextRequest* request,
                                                proto::NextReply* reply) {
  return Open(this, context, "Next", request, reply);
}

grpc::ServerReadReactor<proto::TellPiece>* DirectorMembers::Tell(
    grpc::CallbackServerContext* context, proto::NextReply* reply) {
  return OpenTellCall(this, &tell_calls_, context, reply);
}

grpc::ServerUnaryReactor* DirectorMembers::GetView(grpc::CallbackServerContext* context,
                                                   const proto::GetViewRequest* request,
                                                   proto::GetViewReply* reply) {
  return Open(this, context, "GetView", request, reply);
}

void DirectorMembers::OnCall(NextCall::Ptr call) {
  Answers answers;
  absl::MutexLock lock(&mu_);
  state_.calls().Take(std::move(call), &answers);
  if (state_.has_begun() && (state_.work().has_completed() || state_.work().pass())) WakeLocked();
}

void DirectorMembers::OnBroken(NextCall::Ptr call) {
  Answers answers;
  absl::MutexLock lock(&mu_);
  state_.calls().Drop(call, &answers);
}

void DirectorMembers::OnCall(ViewCall::Ptr call) {
  Answers answers;
  absl::MutexLock lock(&mu_);
  state_.calls().Take(std::move(call), &answers);
}

void DirectorMembers::OnBroken(ViewCall::Ptr call) {
  Answers answers;
  absl::MutexLock lock(&mu_);
  state_.calls().Drop(call, &answers);
}

// ---- Calls to servers

ServerCall DirectorMembers::ChooseCall(int task) {
  absl::MutexLock lock(&mu_);
  return state_.servers().NextCall(task, Clock::now());
}

void DirectorMembers::OnFailure(int task, const ServerCall& call, const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  if (state_.CallFailed(task, call, status)) WakeLocked();
}

void DirectorMembers::OnAnswer(int task, const ServerCall& call, ServerLinks::Answer answer) {
  Answers answers;
  absl::MutexLock lock(&mu_);
  if (!state_.Answered(task, call, std::move(answer))) return;
  WakeLocked();
  state_.calls().AnswerHeld(Clock::now(), &answers);
}

}  // namespace muster::chief
