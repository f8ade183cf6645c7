#include "chief/coordinator/session.h"

#include <fmt/format.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <new>

#include "chief/coordinator/admission/peer_limits.h"

namespace muster::chief {

std::shared_ptr<Session> Session::Make(Handler* handler, grpc::CallbackServerContext* context) {
  auto session = std::shared_ptr<Session>(new Session(handler, context));
  session->self_ = session;
  return session;
}

Session::Message Session::Encode(const proto::CoordinatorMessage& message) {
  auto bytes = std::make_shared<grpc::ByteBuffer>();
  bool own = false;
  (void)grpc::SerializationTraits<proto::CoordinatorMessage>::Serialize(message, bytes.get(), &own);
  return bytes;
}

void Session::WriteNextLocked() {
  writing_ = true;
  outgoing_ = std::move(queue_.front());
  queue_.pop_front();
  StartWrite(outgoing_.get());
}

std::optional<grpc::Status> Session::ToFinishLocked() {
  if (finished_ || writing_ || !(read_ended_ || (closing_ && queue_.empty()))) return std::nullopt;
  finished_ = true;
  context_ = nullptr;
  return status_;
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

void Session::Close(const grpc::Status& status) {
  std::optional<grpc::Status> finish;
  {
    absl::MutexLock lock(&mu_);
    if (!closing_) status_ = status;
    closing_ = true;
    finish = ToFinishLocked();
  }
  if (finish) Finish(*finish);
}

void Session::Kill() {
  absl::MutexLock lock(&mu_);
  if (context_ != nullptr) context_->TryCancel();
}

// gRPC swallows exceptions. Without this catch, the session would neither continue to read nor end.
grpc::Status Session::TakeMessage() {
  try {
    proto::MemberMessage message;
    const grpc::Status parsed =
        grpc::SerializationTraits<proto::MemberMessage>::Deserialize(&incoming_, &message);
    if (parsed.ok()) handler_->OnMessage(self_, message);
    return parsed;
  } catch (const std::bad_alloc&) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                        "out of memory for a message of the session");
  }
}

void Session::OnReadDone(bool ok) {
  grpc::Status taken;
  const size_t most = std::exchange(first_, false) ? kMaxHelloBytes : kMaxReportBytes;
  if (ok && incoming_.Length() > most) {
    taken = grpc::Status(
        grpc::StatusCode::RESOURCE_EXHAUSTED,
        fmt::format("a message of {} bytes, more than the limit of {}", incoming_.Length(), most));
  } else if (ok) {
    taken = TakeMessage();
  }
  if (ok && taken.ok()) return StartRead(&incoming_);
  handler_->OnBroken(self_);
  std::optional<grpc::Status> finish;
  {
    absl::MutexLock lock(&mu_);
    read_ended_ = true;
    if (!taken.ok()) status_ = taken;
    finish = ToFinishLocked();
  }
  if (finish) Finish(*finish);
}

void Session::OnWriteDone(bool ok) {
  std::optional<grpc::Status> finish;
  {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    outgoing_.reset();
    if (!ok) queue_.clear();
    if (!queue_.empty() && !read_ended_) WriteNextLocked();
    finish = ToFinishLocked();
  }
  if (finish) Finish(*finish);
}

void Session::OnDone() { self_.reset(); }

}  // namespace muster::chief
