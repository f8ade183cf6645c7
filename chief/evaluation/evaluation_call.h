// A unary call of the evaluator that the chief may hold. The service's thread answers it. Holding a
// call costs no thread.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <memory>

#include "common/base/pausing_clock.h"
#include "proto/evaluation.grpc.pb.h"

namespace muster {

class EvaluationCall final : public grpc::ServerUnaryReactor {
 public:
  // Called on gRPC's threads. Must outlive the server.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnCall(std::shared_ptr<EvaluationCall> call) = 0;
    // The connection broke, or the caller gave up, before Answer. Answer must still be called.
    virtual void OnBroken(uint64_t incarnation) = 0;
    // The reply with the job's end has left this process.
    virtual void OnEndTold(uint64_t incarnation) = 0;
  };

  static grpc::ServerUnaryReactor* Open(Handler* handler, const proto::NextCheckpointRequest* next,
                                        proto::NextCheckpointReply* reply) {
    auto call = Make(handler, next->evaluator().incarnation());
    call->next = next;
    call->next_reply = reply;
    return Hand(call);
  }
  static grpc::ServerUnaryReactor* Open(Handler* handler, const proto::EvaluationReport* report,
                                        proto::EvaluationReply* reply) {
    auto call = Make(handler, report->evaluator().incarnation());
    call->report = report;
    call->report_reply = reply;
    return Hand(call);
  }

  const proto::EvaluatorIdentity& who() const {
    return next != nullptr ? next->evaluator() : report->evaluator();
  }
  bool broken() const { return broken_; }
  // Called once. The call must not be used afterwards.
  void Answer(const grpc::Status& status, bool tells_end = false) {
    tells_end_ = tells_end;
    Finish(status);
  }

  void OnCancel() override {
    broken_ = true;
    handler_->OnBroken(incarnation_);
  }
  void OnDone() override {
    if (tells_end_ && !broken_) handler_->OnEndTold(incarnation_);
    self_.reset();
  }

  PausingTime taken;  // Set and read by the service.
  // Only one of the two pairs is set.
  const proto::NextCheckpointRequest* next = nullptr;
  proto::NextCheckpointReply* next_reply = nullptr;
  const proto::EvaluationReport* report = nullptr;
  proto::EvaluationReply* report_reply = nullptr;

 private:
  EvaluationCall(Handler* handler, uint64_t incarnation)
      : handler_(handler), incarnation_(incarnation) {}
  static std::shared_ptr<EvaluationCall> Make(Handler* handler, uint64_t incarnation) {
    return std::shared_ptr<EvaluationCall>(new EvaluationCall(handler, incarnation));
  }
  static grpc::ServerUnaryReactor* Hand(const std::shared_ptr<EvaluationCall>& call) {
    call->self_ = call;
    call->handler_->OnCall(call);
    return call.get();
  }

  Handler* const handler_;
  const uint64_t incarnation_;
  std::shared_ptr<EvaluationCall> self_;  // Keeps this object alive until OnDone.
  std::atomic<bool> broken_ = false, tells_end_ = false;
};

}  // namespace muster
