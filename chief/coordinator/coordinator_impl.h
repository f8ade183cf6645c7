// The implementation of Coordinator. One mutex guards one state. The coordinator's thread decides
// and acts (coordinator.cc) through CoordinatorActions. gRPC's threads deliver the messages of
// members and other callers (coordinator_sessions.cc). Registration (coordinator_registration.h)
// handles each Hello.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "chief/coordinator/coordinator_actions.h"
#include "chief/coordinator/coordinator_registration.h"
#include "chief/coordinator/identity_writer.h"

namespace muster::chief {

// Session streams carry encoded messages, so the coordinator encodes a message to all members once.
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
  proto::StatusReply Describe() override;
  Verdict Wait() override;
  Verdict WaitForEnd() override;
  void End(Verdict verdict) override;
  void EndFinished(const std::string& message) override;
  void EndAfterLastStep() override;
  void RequestStop() override;
  std::map<std::string, proto::TaskStats> Stats() override {
    absl::MutexLock lock(&mu_);
    return state_.stats.All();
  }

  // From Session::Handler.
  void OnMessage(const std::shared_ptr<chief::Session>& session,
                 const proto::MemberMessage& message) override;
  void OnBroken(const std::shared_ptr<chief::Session>& session) override;

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
  // Starts to write the run's identity to the disk if the chief adopts a run or a generation waits
  // for the write. Ends the job if the write takes longer than timeouts.join.
  void RecordIdentityLocked(PausingTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void KeptLocked(const IdentityWriter::Result& kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnHello(const std::shared_ptr<chief::Session>& session, const proto::Hello& said);
  void MakeRoomForSessionLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndWithoutHelloLocked(PausingTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReportLocked(int member, const proto::Report& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int MemberOfLocked(const chief::Session* session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CoordinatorOptions options_;
  const chief::Session::Message pulse_, stop_pulse_;  // Sent once per heartbeat.
  LogRateLimiter refused_lines_;
  std::unique_ptr<rpc::Server> server_;
  std::thread thread_;
  // The five members below are used only by thread_.
  MonotonicTime next_probe_;
  bool to_form_ = false;   // A generation waits for the write of the run's identity.
  absl::Status not_kept_;  // The error of the last write of the identity.
  std::optional<PausingTime> not_kept_since_;
  // The last time at which a write was needed.
  PausingTime to_keep_at_;

  absl::Mutex mu_;
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  CoordinatorState state_ ABSL_GUARDED_BY(mu_);
  CoordinatorActions actions_ ABSL_GUARDED_BY(mu_);
  Registration registration_ ABSL_GUARDED_BY(mu_);
  // Sessions that have not sent a Hello, with the time at which each was opened.
  std::map<std::shared_ptr<chief::Session>, PausingTime> greeting_ ABSL_GUARDED_BY(mu_);
  std::optional<IdentityWriter::Result> kept_ ABSL_GUARDED_BY(mu_);
  // Used only by thread_. Must be the last member, because the writer's thread uses the members
  // above.
  IdentityWriter keeper_;
};

}  // namespace muster::chief
