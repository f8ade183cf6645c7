#include "common/membership/resources/chief_session.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace muster::membership {

ChiefSession::ChiefSession(std::shared_ptr<rpc::RenewableChannel> channel, rpc::RetryPolicy retry,
                           uint64_t seed, Callbacks callbacks)
    : channel_(std::move(channel)), callbacks_(std::move(callbacks)), backoff_(retry, seed) {}

void ChiefSession::Open(proto::Hello hello) {
  absl::MutexLock lock(&mu_);
  if (std::exchange(opened_, true)) closed_.push_back({nullptr, channel_->Renew()});
  // The call does not need the stub afterwards.
  session_ =
      SessionClient::Open(proto::Coordinator::NewStub(channel_->Get()).get(), std::move(hello),
                          {.on_message = callbacks_.on_message,
                           .on_closed = [this](const grpc::Status& status) { OnClosed(status); }});
}

void ChiefSession::Send(proto::Report report) {
  absl::MutexLock lock(&mu_);
  if (session_) session_->Send(std::move(report));
}

void ChiefSession::Cancel() {
  absl::MutexLock lock(&mu_);
  if (session_) session_->Cancel();
}

void ChiefSession::Reached() {
  absl::MutexLock lock(&mu_);
  backoff_.Reset();
}

void ChiefSession::DropClosed() {
  std::vector<Closed> closed;  // Destroyed without mu_.
  absl::MutexLock lock(&mu_);
  closed.swap(closed_);
}

void ChiefSession::Close(Duration patience) {
  {
    absl::MutexLock lock(&mu_);
    if (session_) session_->Leave();
    const MonotonicTime until = Clock::now() + patience;
    while (session_ || closing_)
      if (changed_.WaitUntil(&mu_, until)) break;
    if (session_) session_->Cancel();
    // gRPC always ends a cancelled call.
    while (session_ || closing_) changed_.Wait(&mu_);
  }
  DropClosed();
}

void ChiefSession::OnClosed(const grpc::Status& status) {
  static constexpr grpc::StatusCode kFinal[] = {
      grpc::StatusCode::UNIMPLEMENTED, grpc::StatusCode::INVALID_ARGUMENT,
      grpc::StatusCode::UNAUTHENTICATED, grpc::StatusCode::PERMISSION_DENIED};
  SessionClosed event{.no_chief = std::find(std::begin(kFinal), std::end(kFinal),
                                            status.error_code()) != std::end(kFinal)};
  event.why = event.no_chief ? status.error_message() : channel_->Why(status);
  {
    absl::MutexLock lock(&mu_);
    event.retry = backoff_.Next();
    closed_.push_back({std::exchange(session_, nullptr), nullptr});
    closing_ = true;
  }
  callbacks_.on_closed(std::move(event));
  absl::MutexLock lock(&mu_);
  closing_ = false;
  changed_.SignalAll();
}

}  // namespace muster::membership
