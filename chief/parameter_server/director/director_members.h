// DirectorMembers is the part of the Director that communicates with the members of a
// parameter-server job (workers and ps tasks). It serves proto::Leases to workers, receives the
// coordinator's events about members, and calls the ps tasks. Its mutex guards the DirectorState
// (director_state.h). "The director's thread" is the thread that calls Director::Run. Thread-safe,
// except for functions whose comment names a thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/coordinator/member_events.h"
#include "chief/parameter_server/director/director.h"
#include "chief/parameter_server/director/director_state.h"
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
  // Gives exclusive access to the DirectorState. The destructor first releases the mutex, and then
  // finishes the workers' calls that were answered while the Lock existed.
  class ABSL_SCOPED_LOCKABLE Lock {
   public:
    // `members` must outlive this object.
    explicit Lock(DirectorMembers* members) ABSL_EXCLUSIVE_LOCK_FUNCTION(members->mu_);
    ~Lock() ABSL_UNLOCK_FUNCTION();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    DirectorState& operator*();
    DirectorState* operator->() { return &**this; }
    // Answers each held call of a worker (LeaseCalls) if the answer is now known.
    void AnswerHeld();
    // Both functions wait for an event, such as Wake or the loss of a member, for at most 100 ms.
    // They release the mutex while they wait. AwaitEvent returns at once if an event came since the
    // last AwaitEvent. AwaitChange always waits for a new event.
    void AwaitEvent();
    void AwaitChange();

   private:
    DirectorMembers* const members_;
    LeaseCalls::Answers answers_;
  };

  // `options` must outlive this object.
  explicit DirectorMembers(const DirectorOptions& options) : state_(options) {}
  ~DirectorMembers() override { StopLinks(); }

  // Prepares for calls of workers and for calls to ps tasks. Called once, on the director's thread,
  // before Director::Run waits for members. Members may have joined before this call. `clients` is
  // indexed by ps task. The other arguments are passed to DirectorState::Prepare.
  void Prepare(std::vector<std::unique_ptr<ShardClient>> clients, LeaseCalls::Program program,
               push_pull::IntegerBuffers integers, int64_t copies);
  // Returns the links to the ps tasks, null before Prepare. Called on the director's thread.
  ServerLinks* links() { return links_.get(); }
  // Cancels the calls to ps tasks and blocks until they have ended. Called on the director's
  // thread.
  void StopLinks();

  void Abort(const absl::Status& why);  // See Director::Abort.
  void Wake();                          // Wakes the director's thread.

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
  std::unique_ptr<ServerLinks> links_;  // Set by Prepare. Other threads use state_'s pointer to it.
  absl::Mutex mu_;
  CondVar wake_;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  DirectorState state_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::chief
