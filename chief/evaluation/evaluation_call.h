// An EvaluationCall is a unary gRPC call from the evaluator: either Next or Report of
// proto/evaluation.proto. The chief may delay its answer. A call that waits for its answer uses no
// thread. The thread of EvaluationService answers all calls.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <memory>

#include "common/base/pausing_clock.h"
#include "proto/evaluation.grpc.pb.h"

namespace muster::chief {

class EvaluationCall final : public grpc::ServerUnaryReactor {
 public:
  // Receives the events of all calls, on gRPC's threads. Must outlive the gRPC server.
  class Handler {
   public:
    virtual ~Handler() = default;
    // Called for each new call.
    virtual void OnCall(std::shared_ptr<EvaluationCall> call) = 0;
    // Called if the connection breaks or the evaluator cancels the call before Answer. Answer
    // must still be called. `incarnation` is the random number that identifies the evaluator's
    // process.
    virtual void OnBroken(uint64_t incarnation) = 0;
    // Called when gRPC has sent a reply that tells the evaluator that the job has ended.
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
  // Finishes the call. Called once. The caller must not use this object afterwards. `tells_end` is
  // true if the reply tells the evaluator that the job has ended. Handler::OnEndDelivered is then
  // called once the reply is sent.
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

  // The time at which EvaluationService received the call. Only EvaluationService uses this field.
  PausingTime taken;
  // For a call of Next, `next` and `next_reply` are set. For a call of Report, `report` and
  // `report_reply` are set. gRPC owns the messages, which live until Answer.
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
