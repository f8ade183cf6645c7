// A call of a worker's to proto::Leases that the director may hold: answered from any thread, told
// to it when the connection breaks. Costs no thread.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>

#include "common/base/clock.h"
#include "proto/parameter_server.grpc.pb.h"

namespace muster {

template <typename Request, typename Reply>
class LeaseCall final : public grpc::ServerUnaryReactor {
 public:
  using Ptr = std::shared_ptr<LeaseCall>;
  // Must outlive the server.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnCall(Ptr call) = 0;
    // The caller has gone before Finish, which is due all the same.
    virtual void OnBroken(Ptr call) = 0;
  };

  static grpc::ServerUnaryReactor* Open(Handler* handler, const Request* request, Reply* reply) {
    const Ptr call(new LeaseCall(handler, request, reply));
    call->self_ = call;
    handler->OnCall(call);
    return call.get();
  }
  void OnCancel() override { handler_->OnBroken(self_); }
  void OnDone() override { self_.reset(); }

  const MonotonicTime arrived = Clock::now();
  const Request* const request;
  Reply* const reply;

 private:
  LeaseCall(Handler* handler, const Request* request, Reply* reply)
      : request(request), reply(reply), handler_(handler) {}

  Handler* const handler_;
  Ptr self_;  // until OnDone
};

using NextCall = LeaseCall<proto::NextRequest, proto::NextReply>;
using ViewCall = LeaseCall<proto::GetViewRequest, proto::GetViewReply>;

}  // namespace muster
