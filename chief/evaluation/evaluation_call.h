// An EvaluationCall is a unary call from the evaluator. The chief may hold the call for a while
// without using a thread. The thread of EvaluationService answers it.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <memory>

#include "common/base/pausing_clock.h"
#include "proto/evaluation.grpc.pb.h"

namespace muster::chief {

class EvaluationCall final : public grpc::ServerUnaryReactor {
 public:
  // Receives the events of calls, on gRPC's threads. Must outlive the server.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnCall(std::shared_ptr<EvaluationCall> call) = 0;
    // The connection broke, or the evaluator cancelled the call, before Answer. Answer must still
    // be called.
    virtual void OnBroken(uint64_t incarnation) = 0;
    // gRPC has sent the reply with the job's end.
    virtual void OnEndDelivered(uint64_t incarnation) = 0;
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
  // Finishes the call. Called once; the caller must not use the call afterwards. `tells_end`: the
  // reply has the job's end, so OnEndDelivered follows.
  void Answer(const grpc::Status& status, bool tells_end = false) {
    carries_end_ = tells_end;
    Finish(status);
  }

  void OnCancel() override {
    broken_ = true;
    handler_->OnBroken(incarnation_);
  }
  void OnDone() override {
    if (carries_end_ && !broken_) handler_->OnEndDelivered(incarnation_);
    self_.reset();
  }

  PausingTime taken;  // Used only by EvaluationService: when it received the call.
  // Either next and next_reply are set, or report and report_reply.
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
  std::atomic<bool> broken_ = false, carries_end_ = false;
};

}  // namespace muster::chief
