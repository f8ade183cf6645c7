// A LeaseCall is a worker's call to proto::Leases, the service through which workers get batches
// and views from the chief. The Director does not have to answer in OnCall. It may answer at any
// time afterwards, on any thread. A call that is not answered yet uses no thread.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "proto/parameter_server.grpc.pb.h"

namespace muster::chief {

template <typename Request, typename Reply>
class LeaseCall {
 public:
  using Ptr = std::shared_ptr<LeaseCall>;
  // Receives the events of all calls, on gRPC's threads. Must outlive the gRPC server.
  class Handler {
   public:
    virtual ~Handler() = default;
    // Called for each new call.
    virtual void OnCall(Ptr call) = 0;
    // Called if the connection breaks or the worker cancels the call before Answer. Answer must
    // still be called.
    virtual void OnBroken(Ptr call) = 0;
  };

  LeaseCall(const Request* request, Reply* reply) : request(request), reply(reply) {}
  virtual ~LeaseCall() = default;
  // Sends `reply` with `status`, and finishes the call. Called once. `request` and `reply` must not
  // be used after this call.
  virtual void Answer(const grpc::Status& status) = 0;

  const MonotonicTime arrived = Clock::now();
  const Request* const request;
  Reply* const reply;
};

// Returns the status for an invalid request of a worker.
inline grpc::Status InvalidRequest(const std::string& why) {
  return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, why);
}

using NextCall = LeaseCall<proto::NextRequest, proto::NextReply>;
using ViewCall = LeaseCall<proto::GetViewRequest, proto::GetViewReply>;

// A call whose request is one message. (OpenTellCall in tell_call.h makes calls whose request comes
// in pieces.)
template <typename Request, typename Reply>
class UnaryLeaseCall final : public LeaseCall<Request, Reply>, public grpc::ServerUnaryReactor {
 public:
  using typename LeaseCall<Request, Reply>::Handler;

  static grpc::ServerUnaryReactor* Open(Handler* handler, const Request* request, Reply* reply) {
    const std::shared_ptr<UnaryLeaseCall> call(new UnaryLeaseCall(handler, request, reply));
    call->self_ = call;
    handler->OnCall(call);
    return call.get();
  }
  void Answer(const grpc::Status& status) override { Finish(status); }
  void OnCancel() override { handler_->OnBroken(self_); }
  void OnDone() override { self_.reset(); }

 private:
  UnaryLeaseCall(Handler* handler, const Request* request, Reply* reply)
      : LeaseCall<Request, Reply>(request, reply), handler_(handler) {}

  Handler* const handler_;
  std::shared_ptr<UnaryLeaseCall> self_;  // Keeps this object alive until OnDone.
};

}  // namespace muster::chief
