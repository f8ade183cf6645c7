#include "chief/session.h"

namespace muster {

Session* Session::Open(Handler* handler, grpc::CallbackServerContext* context) {
  auto session = std::shared_ptr<Session>(new Session(handler, context));
  session->self_ = session;
  session->StartRead(&session->incoming_);
  return session.get();
}

void Session::WriteNextLocked() {
  writing_ = true;
  outgoing_ = std::move(queue_.front());
  queue_.pop_front();
  StartWrite(outgoing_.get());
}

bool Session::ShouldFinishLocked() {
  if (finished_ || writing_ || !(read_ended_ || (closing_ && queue_.empty()))) return false;
  finished_ = true;
  context_ = nullptr;
  return true;
}

void Session::Send(Message message) {
  absl::MutexLock lock(&mu_);
  if (finished_ || closing_ || read_ended_) return;
  queue_.push_back(std::move(message));
  if (!writing_) WriteNextLocked();
}

void Session::SendIfIdle(Message message) {
  absl::MutexLock lock(&mu_);
  if (finished_ || closing_ || read_ended_ || writing_) return;
  queue_.push_back(std::move(message));
  WriteNextLocked();
}

void Session::Close() {
  bool finish;
  {
    absl::MutexLock lock(&mu_);
    closing_ = true;
    finish = ShouldFinishLocked();
  }
  if (finish) Finish(grpc::Status::OK);
}

void Session::Kill() {
  absl::MutexLock lock(&mu_);
  if (context_ != nullptr) context_->TryCancel();
}

void Session::OnReadDone(bool ok) {
  if (ok) {
    handler_->OnMessage(self_, incoming_);
    StartRead(&incoming_);
    return;
  }
  handler_->OnBroken(self_);
  bool finish;
  {
    absl::MutexLock lock(&mu_);
    read_ended_ = true;
    finish = ShouldFinishLocked();
  }
  if (finish) Finish(grpc::Status::OK);
}

void Session::OnWriteDone(bool ok) {
  bool finish;
  {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    outgoing_.reset();
    if (!ok) queue_.clear();
    if (!queue_.empty() && !read_ended_) WriteNextLocked();
    finish = ShouldFinishLocked();
  }
  if (finish) Finish(grpc::Status::OK);
}

void Session::OnDone() { self_.reset(); }

}  // namespace muster
