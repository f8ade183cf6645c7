#include <fmt/format.h>

#include <algorithm>

#include "chief/director_impl.h"
#include "common/push_pull/variable_messages.h"
#include "common/rpc/server.h"

namespace muster {
namespace {

// Of a call to which there is nothing to say.
constexpr Duration kHold = std::chrono::seconds(1);

grpc::Status Unavailable(const std::string& why) {
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, why);
}

template <typename Call, typename Handler, typename Request, typename Reply>
grpc::ServerUnaryReactor* Open(Handler* handler, grpc::CallbackServerContext* context,
                               const char* name, const Request* request, Reply* reply) {
  if (const grpc::Status refusal = rpc::RequireDeadline(*context, name); !refusal.ok()) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(refusal);
    return reactor;
  }
  return Call::Open(handler, request, reply);
}

}  // namespace

DirectorImpl::Answered::~Answered() {
  for (const auto& [call, status] : next) call->Finish(status);
  for (const auto& [call, status] : view) call->Finish(status);
}

grpc::ServerUnaryReactor* DirectorImpl::Next(grpc::CallbackServerContext* context,
                                             const proto::NextRequest* request,
                                             proto::NextReply* reply) {
  return Open<NextCall>(static_cast<NextCall::Handler*>(this), context, "Next", request, reply);
}

grpc::ServerUnaryReactor* DirectorImpl::GetView(grpc::CallbackServerContext* context,
                                                const proto::GetViewRequest* request,
                                                proto::GetViewReply* reply) {
  return Open<ViewCall>(static_cast<ViewCall::Handler*>(this), context, "GetView", request, reply);
}

grpc::Status DirectorImpl::CheckCallerLocked(const proto::WorkerIdentity& worker) const {
  if (exiting_) return Unavailable("the chief ends");
  if (!running_) return Unavailable("the chief is not ready yet");
  if (!table_->Knows(worker.worker(), worker.incarnation()))
    return Unavailable(
        fmt::format("this process is not the worker {} that the chief knows: join "
                    "first",
                    worker.worker()));
  return grpc::Status::OK;
}

grpc::Status DirectorImpl::CheckLayoutLocked(const proto::NextRequest& request) const {
  if (request.digest().empty() || request.digest() == digest_) return grpc::Status::OK;
  const std::string difference = FirstDifference(SpecsOf(request.variables()), state_->variables());
  return grpc::Status(
      grpc::StatusCode::INVALID_ARGUMENT,
      fmt::format(
          "the variables of worker {} are not the chief's: {}", request.worker().worker(),
          difference.empty() ? "they are divided among servers in another way" : difference));
}

// A call may overtake the one before it; of workers the last one's count.
grpc::Status DirectorImpl::TakeIntegersLocked(const proto::NextRequest& request) {
  const int worker = request.worker().worker();
  for (const auto& [name, value] : request.buffers()) {
    const auto built = built_integers_.find(name);
    if (built != built_integers_.end() && built->second.size() == value.size()) continue;
    return grpc::Status(
        grpc::StatusCode::INVALID_ARGUMENT,
        fmt::format("worker {} tells {} bytes of buffer {}, the chief's program has {}: start all "
                    "tasks with one program",
                    worker, value.size(), name,
                    built == built_integers_.end() ? 0 : built->second.size()));
  }
  if (request.buffers().empty()) return grpc::Status::OK;
  uint64_t& told = integers_told_[{worker, request.worker().incarnation()}];
  if (request.buffers_sequence() < told) return grpc::Status::OK;
  told = request.buffers_sequence();
  for (const auto& [name, value] : request.buffers()) integers_[name] = value;
  return grpc::Status::OK;
}

void DirectorImpl::OnCall(NextCall::Ptr call) {
  Answered answered;
  absl::MutexLock lock(&mu_);
  const proto::WorkerIdentity& caller = call->request->worker();
  grpc::Status status = CheckCallerLocked(caller);
  if (status.ok()) status = CheckLayoutLocked(*call->request);
  if (status.ok()) {
    if (!call->request->digest().empty()) introduced_[caller.worker()] = caller.incarnation();
    const auto known = introduced_.find(caller.worker());
    if (known == introduced_.end() || known->second != caller.incarnation()) {
      call->reply->set_digest(digest_);
      call->reply->set_introduce(true);
      answered.next.emplace_back(std::move(call), status);
      return;
    }
    const absl::Status taken = table_->Take(*call->request);
    if (!taken.ok())
      status = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, std::string(Message(taken)));
    else
      status = TakeIntegersLocked(*call->request);
  }
  if (!status.ok()) {
    answered.next.emplace_back(std::move(call), status);
    return;
  }
  if (table_->has_completed() || table_->pass()) WakeLocked();
  const MonotonicTime now = Clock::now();
  // One call of a worker at a time: it has given the one before up.
  const int worker = caller.worker();
  std::erase_if(held_next_, [&](const NextCall::Ptr& held) {
    if (held->request->worker().worker() != worker) return false;
    held->reply->set_kind(proto::NextReply::WAIT);
    answered.next.emplace_back(held, grpc::Status::OK);
    return true;
  });
  held_next_.push_back(std::move(call));
  AnswerHeldLocked(now, &answered);
}

void DirectorImpl::OnBroken(NextCall::Ptr call) {
  Answered answered;
  absl::MutexLock lock(&mu_);
  if (std::erase(held_next_, call) > 0)
    answered.next.emplace_back(std::move(call), grpc::Status::CANCELLED);
}

void DirectorImpl::OnCall(ViewCall::Ptr call) {
  Answered answered;
  absl::MutexLock lock(&mu_);
  if (const grpc::Status status = CheckCallerLocked(call->request->worker()); !status.ok()) {
    answered.view.emplace_back(std::move(call), status);
    return;
  }
  if (TryViewLocked(call->arrived, *call))
    answered.view.emplace_back(std::move(call), grpc::Status::OK);
  else
    held_view_.push_back(std::move(call));
}

void DirectorImpl::OnBroken(ViewCall::Ptr call) {
  Answered answered;
  absl::MutexLock lock(&mu_);
  if (std::erase(held_view_, call) > 0)
    answered.view.emplace_back(std::move(call), grpc::Status::CANCELLED);
}

std::string DirectorImpl::WhyShutLocked(int worker) const {
  for (size_t s = 0; s < placements_.size(); ++s)
    if (placements_[s].primary < 0) return fmt::format("nobody serves shard {} yet", s);
  for (size_t task = 0; task < servers_.size(); ++task) {
    const Server& server = *servers_[task];
    if (!server.present()) continue;
    if (server.view < view_.number()) return fmt::format("ps {} has not got the view yet", task);
    const auto since = worker_since_.find(worker);
    if (since == worker_since_.end() || server.workers < since->second)
      return fmt::format("ps {} has not been told of worker {} yet", task, worker);
  }
  return view_.number() == 0 ? "there is no view yet" : "";
}

bool DirectorImpl::TryNextLocked(MonotonicTime now, NextCall& call) {
  const int worker = call.request->worker().worker();
  call.reply->set_view(current_view_);
  call.reply->set_digest(digest_);
  call.reply->set_global_batch_size(global_batch_size_);
  call.reply->clear_buffers();
  if (!call.request->digest().empty())
    call.reply->mutable_buffers()->insert(integers_.begin(), integers_.end());
  return table_->Answer(*call.request, WhyShutLocked(worker), call.reply) ||
         now - call.arrived >= kHold;
}

bool DirectorImpl::TryViewLocked(MonotonicTime now, ViewCall& call) {
  call.reply->set_abandon(table_->Abandoned(call.request->worker().worker()));
  const bool newer = current_view_ == view_.number() && current_view_ > call.request->newer_than();
  if (newer) *call.reply->mutable_view() = view_;
  return newer || call.reply->abandon() || now - call.arrived >= kHold;
}

void DirectorImpl::AnswerHeldLocked(MonotonicTime now, Answered* answered) {
  // One worker's answer may be what another one waits for: of an epoch's end.
  std::erase_if(held_next_, [&](const NextCall::Ptr& call) {
    mu_.AssertHeld();
    grpc::Status status = CheckCallerLocked(call->request->worker());
    if (status.ok() && !TryNextLocked(now, *call)) return false;
    answered->next.emplace_back(call, status);
    return true;
  });
  std::erase_if(held_view_, [&](const ViewCall::Ptr& call) {
    mu_.AssertHeld();
    grpc::Status status = CheckCallerLocked(call->request->worker());
    if (status.ok() && !TryViewLocked(now, *call)) return false;
    answered->view.emplace_back(call, status);
    return true;
  });
}

}  // namespace muster
