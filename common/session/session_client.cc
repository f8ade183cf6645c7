#include "common/session/session_client.h"

#include <utility>

namespace muster {

std::shared_ptr<SessionClient> SessionClient::Open(proto::Coordinator::Stub* stub,
                                                   proto::Hello hello, Callbacks callbacks) {
  auto session = std::shared_ptr<SessionClient>(new SessionClient(std::move(callbacks)));
  stub->async()->Session(&session->context_, session.get());
  session->AddHold();
  {
    absl::MutexLock lock(&session->mu_);
    session->next_.emplace();
    *session->next_->mutable_hello() = std::move(hello);
    session->WriteNextLocked();
  }
  session->StartRead(&session->incoming_);
  session->StartCall();
  return session;
}

void SessionClient::WriteNextLocked() {
  writing_ = true;
  outgoing_ = *std::move(next_);
  next_.reset();
  StartWrite(&outgoing_);
}

void SessionClient::ReleaseLocked() {
  if (ended_) return;
  ended_ = true;
  RemoveHold();
}

void SessionClient::Send(proto::Report report) {
  absl::MutexLock lock(&mu_);
  if (ended_ || leaving_) return;
  next_.emplace();
  *next_->mutable_report() = std::move(report);
  if (!writing_) WriteNextLocked();
}

void SessionClient::Leave() {
  absl::MutexLock lock(&mu_);
  if (ended_ || leaving_) return;
  leaving_ = true;
  if (writing_) return;
  StartWritesDone();
  ReleaseLocked();
}

void SessionClient::OnReadDone(bool ok) {
  if (ok) {
    callbacks_.on_message(incoming_);
    return StartRead(&incoming_);
  }
  absl::MutexLock lock(&mu_);
  ReleaseLocked();
}

void SessionClient::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mu_);
  writing_ = false;
  if (!ok || ended_) return ReleaseLocked();
  if (next_) return WriteNextLocked();
  if (leaving_) {
    StartWritesDone();
    ReleaseLocked();
  }
}

void SessionClient::OnDone(const grpc::Status& status) {
  const auto on_closed = callbacks_.on_closed;  // A copy, because the call may destroy this object.
  on_closed(status);
}

}  // namespace muster
