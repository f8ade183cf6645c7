// The implementation of Coordinator: one state under one mutex. Its own thread decides and acts
// (coordinator.cc). gRPC's threads deliver the messages of members and other callers
// (coordinator_sessions.cc). CoordinatorActions and Registration handle them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "chief/coordinator/coordinator_actions.h"
#include "chief/coordinator/coordinator_registration.h"
#include "chief/coordinator/identity_keeper.h"

namespace muster {

// Sessions carry bytes, so that a message to all members is encoded once.
using CoordinatorService = proto::Coordinator::WithRawCallbackMethod_Session<
    proto::Coordinator::WithCallbackMethod_ReportFailure<
        proto::Coordinator::WithCallbackMethod_Status<proto::Coordinator::Service>>>;

class CoordinatorImpl final : public Coordinator,
                              public Session::Handler,
                              public CoordinatorService {
 public:
  explicit CoordinatorImpl(CoordinatorOptions options);
  ~CoordinatorImpl() override;
  absl::Status Listen();

  int port() const override { return server_->port(); }
  Verdict Wait() override;
  Verdict WaitForEnd() override;
  void End(Verdict verdict) override;
  void EndFinished(const std::string& message) override;
  void GoOnWithLastStep() override;
  void RequestStop() override;

  // From Session::Handler.
  void OnMessage(const std::shared_ptr<muster::Session>& session,
                 const proto::MemberMessage& message) override;
  void OnBroken(const std::shared_ptr<muster::Session>& session) override;

  // From proto::Coordinator.
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ReportFailure(grpc::CallbackServerContext* context,
                                          const proto::FailureReport* request,
                                          proto::FailureReply* reply) override;
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const proto::StatusRequest* request,
                                   proto::StatusReply* reply) override;

 private:
  void Run();
  void ProbeBroken();
  // Starts to write the run's identity if a run is to be adopted or a generation waits for it. Ends
  // the job if that takes longer than timeouts.join.
  void KeepIdentityLocked(PausingTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void KeptLocked(const IdentityKeeper::Result& kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnHello(const std::shared_ptr<muster::Session>& session, const proto::Hello& said);
  void MakeRoomForSessionLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndWithoutHelloLocked(PausingTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReportLocked(int member, const proto::Report& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int MemberOfLocked(const muster::Session* session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CoordinatorOptions options_;
  const muster::Session::Message pulse_, stop_pulse_;  // Sent once per heartbeat.
  LineBudget refused_lines_;
  std::unique_ptr<rpc::Server> server_;
  std::thread thread_;
  // Used only by thread_.
  MonotonicTime next_probe_;
  bool to_form_ = false;   // A generation waits for the run's identity to be on the disk.
  absl::Status not_kept_;  // The error of the last write.
  std::optional<PausingTime> not_kept_since_;
  PausingTime to_keep_at_;  // The time at which the last write was to start.

  absl::Mutex mu_;
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  CoordinatorState state_ ABSL_GUARDED_BY(mu_);
  CoordinatorActions actions_ ABSL_GUARDED_BY(mu_);
  Registration registration_ ABSL_GUARDED_BY(mu_);
  // Sessions that have not sent a Hello, with the time at which each was opened.
  std::map<std::shared_ptr<muster::Session>, PausingTime> greeting_ ABSL_GUARDED_BY(mu_);
  std::optional<IdentityKeeper::Result> kept_ ABSL_GUARDED_BY(mu_);
  // Used only by thread_. Last member, because its own thread uses all of the above.
  IdentityKeeper keeper_;
};

}  // namespace muster
