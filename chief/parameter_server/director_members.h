// DirectorMembers is the side of the director that members talk to: it serves proto::Leases to
// workers, receives the coordinator's events and calls the ps tasks. Its mutex guards the
// DirectorState. Thread-safe, except for functions that say otherwise.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/coordinator/member_events.h"
#include "chief/parameter_server/director.h"
#include "chief/parameter_server/director_state.h"
#include "chief/parameter_server/lease_calls.h"
#include "chief/parameter_server/tell_call.h"
#include "chief/shards/server_links.h"
#include "common/base/wait.h"

namespace muster::chief {

class DirectorMembers final : public proto::Leases::CallbackService,
                              public MemberEvents,
                              private NextCall::Handler,
                              private ViewCall::Handler,
                              private ServerLinks::Handler {
 public:
  // Exclusive access to the DirectorState. Calls of workers that are answered meanwhile finish once
  // the mutex is released.
  class ABSL_SCOPED_LOCKABLE Lock {
   public:
    // `members` must outlive this object.
    explicit Lock(DirectorMembers* members) ABSL_EXCLUSIVE_LOCK_FUNCTION(members->mu_);
    ~Lock() ABSL_UNLOCK_FUNCTION();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    DirectorState& operator*();
    DirectorState* operator->() { return &**this; }
    // Answers the held calls of workers that now have an answer.
    void AnswerHeld();
    // Both release the mutex while they wait, for 100 ms at the most. AwaitEvent returns at once if
    // Wake was called since the last AwaitEvent.
    void AwaitEvent();
    void AwaitChange();

   private:
    DirectorMembers* const members_;
    LeaseCalls::Answers answers_;
  };

  // `options` must outlive this object.
  explicit DirectorMembers(const DirectorOptions& options) : state_(options) {}
  ~DirectorMembers() override { StopLinks(); }

  // Prepares the calls of workers and to servers. Called once, by the director's thread, before
  // Director::Run waits for members. Members may already have joined.
  void Prepare(std::vector<std::unique_ptr<ShardClient>> clients, LeaseCalls::Program program,
               push_pull::IntegerBuffers integers, int64_t copies);
  // The links to the ps tasks, null before Prepare. Called by the director's thread.
  ServerLinks* links() { return links_.get(); }
  // Cancels the calls to servers and blocks until they have ended. Called by the director's thread.
  void StopLinks();

  void Abort(const absl::Status& why);
  void Wake();

  // MemberEvents
  void OnAdmitted(const AdmittedMember& member) override;
  void OnLost(const TaskId& task, uint64_t incarnation, const std::string& why,
              bool ended) override;
  void OnStopRequested() override;

  // proto::Leases
  grpc::ServerUnaryReactor* Next(grpc::CallbackServerContext* context,
                                 const proto::NextRequest* request,
                                 proto::NextReply* reply) override;
  grpc::ServerReadReactor<proto::TellPiece>* Tell(grpc::CallbackServerContext* context,
                                                  proto::NextReply* reply) override;
  grpc::ServerUnaryReactor* GetView(grpc::CallbackServerContext* context,
                                    const proto::GetViewRequest* request,
                                    proto::GetViewReply* reply) override;

 private:
  using Answers = LeaseCalls::Answers;

  // NextCall::Handler, ViewCall::Handler
  void OnCall(NextCall::Ptr call) override;
  void OnBroken(NextCall::Ptr call) override;
  void OnCall(ViewCall::Ptr call) override;
  void OnBroken(ViewCall::Ptr call) override;
  // ServerLinks::Handler
  ServerCall ChooseCall(int task) override;
  void OnAnswer(int task, const ServerCall& call, ServerLinks::Answer answer) override;
  void OnFailure(int task, const ServerCall& call, const absl::Status& status) override;
  void WakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  rpc::BulkCalls tell_calls_{kTellCallLimits, "the chief ends"};
  std::unique_ptr<ServerLinks> links_;  // Set by Prepare. Others use it through state_.
  absl::Mutex mu_;
  CondVar wake_;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  DirectorState state_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::chief
