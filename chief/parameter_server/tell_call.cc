#include "chief/parameter_server/tell_call.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "common/rpc/guarded.h"
#include "common/rpc/server/server.h"

namespace muster::chief {
namespace {

// A base class, so that the request exists before NextCall, which points to it.
struct TellRequest {
  proto::NextRequest request_;
};

class TellCall final : private TellRequest,
                       public NextCall,
                       public grpc::ServerReadReactor<proto::TellPiece> {
 public:
  static TellCall* Open(Handler* handler, rpc::BulkCalls* calls,
                        grpc::CallbackServerContext* context, proto::NextReply* reply) {
    const std::shared_ptr<TellCall> call(new TellCall(handler, calls, context, reply));
    call->self_ = call;
    call->Begin();
    return call.get();
  }
  void Answer(const grpc::Status& status) override { Finish(status); }
  void OnReadDone(bool ok) override {
    if (!ok) return End();
    const grpc::Status taken = rpc::Guarded([this] { return Take(); });
    if (!taken.ok()) return Finish(taken);
    place_->Passed();
    StartRead(&piece_);
  }
  void OnCancel() override { handler_->OnBroken(self_); }
  void OnDone() override {
    place_.reset();
    self_.reset();
  }

 private:
  TellCall(Handler* handler, rpc::BulkCalls* calls, grpc::CallbackServerContext* context,
           proto::NextReply* reply)
      : NextCall(&request_, reply), handler_(handler), context_(context) {
    // A worker sends one request at a time, so no worker can take the places of others.
    const std::optional<security::Peer> caller = rpc::CallerOf(*context);
    place_.emplace(calls, context, "Tell", caller ? caller->task : "");
  }
  void Begin() {
    if (const grpc::Status refusal = rpc::RequireDeadline(*context_, "Tell"); !refusal.ok())
      return Finish(refusal);
    // UNAVAILABLE makes the worker retry.
    if (const grpc::Status full = place_->Admit(); !full.ok())
      return Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, full.error_message()));
    StartRead(&piece_);
  }
  grpc::Status Take() {
    // Small or empty pieces must not keep a place for long.
    if (piece_.data().empty()) return InvalidRequest("a worker tells an empty piece");
    if (Clock::now() > until_)
      return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "the pieces came too slowly");
    if (piece_.bytes() < 0 || piece_.bytes() > kMaxTellBytes)
      return InvalidRequest(fmt::format("a worker tells {} bytes, and {} are the most",
                                        piece_.bytes(), kMaxTellBytes));
    all_ += piece_.data();
    if (all_.size() <= static_cast<size_t>(piece_.bytes())) return grpc::Status::OK;
    return InvalidRequest(fmt::format("a worker tells {} bytes, and more came", piece_.bytes()));
  }
  // Passes the complete request to the director, which answers as for a request in one message.
  void End() {
    const grpc::Status read = rpc::Guarded([this] { return Read(); });
    if (!read.ok()) return Finish(read);
    place_.reset();
    handler_->OnCall(self_);
  }
  grpc::Status Read() {
    if (all_.empty() || all_.size() != static_cast<size_t>(piece_.bytes()))
      return InvalidRequest(
          fmt::format("a worker tells {} bytes, and {} came", piece_.bytes(), all_.size()));
    if (!request_.ParseFromString(all_))
      return InvalidRequest("what a worker tells is no NextRequest");
    all_ = std::string();
    return rpc::RequireSpeaker(*context_, fmt::format("worker:{}", request_.worker().worker()));
  }

  Handler* const handler_;
  grpc::CallbackServerContext* const context_;
  std::optional<rpc::BulkCalls::Call> place_;  // Set while pieces arrive.
  const MonotonicTime until_ = Clock::now() + kTellCallTimeout;
  proto::TellPiece piece_;
  std::string all_;
  std::shared_ptr<TellCall> self_;  // Keeps this object alive until OnDone.
};

}  // namespace

grpc::ServerReadReactor<proto::TellPiece>* OpenTellCall(NextCall::Handler* handler,
                                                        rpc::BulkCalls* calls,
                                                        grpc::CallbackServerContext* context,
                                                        proto::NextReply* reply) {
  return TellCall::Open(handler, calls, context, reply);
}

}  // namespace muster::chief
