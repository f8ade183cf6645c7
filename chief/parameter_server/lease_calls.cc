#include "chief/parameter_server/lease_calls.h"

#include <fmt/format.h>

#include <algorithm>

namespace muster::chief {
namespace {

// A call without an answer is held this long.
constexpr Duration kHold = std::chrono::seconds(1);

grpc::Status Unavailable(const std::string& why) {
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, why);
}

}  // namespace

LeaseCalls::Answers::~Answers() {
  for (const auto& [call, status] : next) call->Answer(status);
  for (const auto& [call, status] : view) call->Answer(status);
}

void LeaseCalls::Open(WorkTable* table, const ShardServers* servers) {
  table_ = table;
  servers_ = servers;
  state_ = State::kOpen;
}

// ---- Checks

grpc::Status LeaseCalls::CheckCaller(const proto::WorkerIdentity& worker) const {
  if (state_ == State::kClosed) return Unavailable("the chief ends");
  if (state_ == State::kShut) return Unavailable("the chief is not ready yet");
  if (!table_->Knows(worker.worker(), worker.incarnation()))
    return Unavailable(fmt::format(
        "this process is not the worker {} that the chief knows: join first", worker.worker()));
  return grpc::Status::OK;
}

grpc::Status LeaseCalls::CheckLayout(const proto::NextRequest& request) const {
  if (request.digest().empty() || request.digest() == program_.digest) return grpc::Status::OK;
  const std::string difference =
      push_pull::FirstDifference(push_pull::SpecsOf(request.variables()), program_.variables);
  return InvalidRequest(fmt::format(
      "the variables of worker {} are not the chief's: {}", request.worker().worker(),
      difference.empty() ? "they are divided among servers in another way" : difference));
}

// Stores the integer buffers of the request. A call may overtake an earlier one of the same worker,
// so older values are ignored. Between workers the last report counts.
grpc::Status LeaseCalls::TakeIntegers(const proto::NextRequest& request) {
  const int worker = request.worker().worker();
  for (const auto& [name, value] : request.buffers()) {
    const auto built = program_.built_integers.find(name);
    const size_t bytes = built == program_.built_integers.end() ? 0 : built->second.size();
    if (built == program_.built_integers.end() || bytes != value.size())
      return InvalidRequest(fmt::format(
          "worker {} tells {} bytes of buffer {}, the chief's program has {}: start all tasks "
          "with one program",
          worker, value.size(), name, bytes));
  }
  if (request.buffers().empty()) return grpc::Status::OK;
  uint64_t& after = integers_after_[{worker, request.worker().incarnation()}];
  if (request.buffers_sequence() < after) return grpc::Status::OK;
  after = request.buffers_sequence();
  for (const auto& [name, value] : request.buffers()) integers_[name] = value;
  return grpc::Status::OK;
}

// Sets `introduce` if the worker must send its layout first.
grpc::Status LeaseCalls::TakeReport(const NextCall& call, bool* introduce) {
  const proto::NextRequest& request = *call.request;
  const proto::WorkerIdentity& caller = request.worker();
  if (const grpc::Status status = CheckCaller(caller); !status.ok()) return status;
  if (const grpc::Status status = CheckLayout(request); !status.ok()) return status;
  if (!request.digest().empty()) introduced_[caller.worker()] = caller.incarnation();
  const auto known = introduced_.find(caller.worker());
  *introduce = known == introduced_.end() || known->second != caller.incarnation();
  if (*introduce) return grpc::Status::OK;
  if (const absl::Status taken = table_->Take(request); !taken.ok())
    return InvalidRequest(std::string(Message(taken)));
  return TakeIntegers(request);
}

// ---- Answers

bool LeaseCalls::Try(MonotonicTime now, NextCall& call) {
  call.reply->clear_buffers();
  if (!call.request->digest().empty())
    call.reply->mutable_buffers()->insert(integers_.begin(), integers_.end());
  std::string shut = servers_->WhyClosed(call.request->worker().worker());
  if (shut.empty() && !servers_->IsKept(table_->revision()))
    shut = "no ps has a record of all workers, and of what came back, yet";
  const bool answered = table_->Answer(*call.request, shut, call.reply);
  if (call.reply->has_lease())
    call.reply->mutable_lease()->set_global_batch_size(program_.global_batch_size);
  for (proto::Lease& lease : *call.reply->mutable_more())
    lease.set_global_batch_size(program_.global_batch_size);
  return answered || now - call.arrived >= kHold;
}

bool LeaseCalls::Try(MonotonicTime now, ViewCall& call) {
  call.reply->set_abandon(table_->Abandoned(call.request->worker().worker()));
  const bool newer =
      servers_->all_have_view() && servers_->current_view() > call.request->newer_than();
  if (newer) *call.reply->mutable_view() = servers_->view();
  return newer || call.reply->abandon() || now - call.arrived >= kHold;
}

void LeaseCalls::Take(NextCall::Ptr call, Answers* answers) {
  bool introduce = false;
  const grpc::Status status = TakeReport(*call, &introduce);
  if (introduce) call->reply->mutable_introduce();
  if (introduce || !status.ok()) {
    answers->next.emplace_back(std::move(call), status);
    return;
  }
  // A worker has one call at a time, so it has given up the previous one.
  const int worker = call->request->worker().worker();
  const auto before = std::find_if(held_next_.begin(), held_next_.end(), [&](const auto& held) {
    return held->request->worker().worker() == worker;
  });
  if (before != held_next_.end()) {
    (*before)->reply->mutable_wait();
    answers->next.emplace_back(*before, grpc::Status::OK);
    held_next_.erase(before);
  }
  const MonotonicTime now = Clock::now();
  if (Try(now, *call))
    answers->next.emplace_back(std::move(call), grpc::Status::OK);
  else
    held_next_.push_back(std::move(call));
  AnswerHeld(now, answers);
}

void LeaseCalls::Take(ViewCall::Ptr call, Answers* answers) {
  const grpc::Status status = CheckCaller(call->request->worker());
  if (!status.ok() || Try(call->arrived, *call))
    answers->view.emplace_back(std::move(call), status);
  else
    held_view_.push_back(std::move(call));
}

void LeaseCalls::Drop(const NextCall::Ptr& call, Answers* answers) {
  if (std::erase(held_next_, call) > 0) answers->next.emplace_back(call, grpc::Status::CANCELLED);
}

void LeaseCalls::Drop(const ViewCall::Ptr& call, Answers* answers) {
  if (std::erase(held_view_, call) > 0) answers->view.emplace_back(call, grpc::Status::CANCELLED);
}

// Without a change, only calls held for the maximum time can be answered. These are the first ones
// in the list.
template <typename Held, typename Out>
void LeaseCalls::AnswerAll(MonotonicTime now, bool changed, Held* held, Out* out) {
  for (auto call = held->begin(); call != held->end();) {
    if (!changed && now - (*call)->arrived < kHold) return;
    const grpc::Status status = CheckCaller((*call)->request->worker());
    if (status.ok() && !Try(now, **call)) {
      ++call;
      continue;
    }
    out->emplace_back(*call, status);
    call = held->erase(call);
  }
}

void LeaseCalls::AnswerHeld(MonotonicTime now, Answers* answers) {
  if (table_ == nullptr) return;  // No call is held.
  const uint64_t changed = changes();
  const bool all = changed != answered_changes_ || state_ == State::kClosed;
  AnswerAll(now, all, &held_next_, &answers->next);
  AnswerAll(now, all, &held_view_, &answers->view);
  answered_changes_ = changed;
}

}  // namespace muster::chief
