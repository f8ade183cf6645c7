// The implementation of Coordinator (coordinator.h). One mutex guards the CoordinatorState. The
// coordinator's thread makes the decisions (coordinator.cc) and carries them out with
// CoordinatorActions. gRPC's threads deliver the messages of members and other callers
// (coordinator_sessions.cc). Registration (coordinator_registration.h) handles each Hello, the
// first message of a session. The term (AdmissionOptions::term) is a number above the terms of all
// earlier chiefs of the run.
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

// Session streams carry encoded messages. The coordinator can therefore encode a message once and
// send it to all members.
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
  void Run();  // The body of thread_.
  // Tries to connect to the members with broken sessions, to learn whether their processes still
  // exist.
  void ProbeBroken();
  // Starts a write of the run id and the term to the disk, if a write is needed. A write is needed
  // if the chief, which has no record of its run, is about to adopt the run of a member. A write is
  // also needed if a new generation (a period in which a fixed set of members trains) waits for the
  // write. Ends the job if no write succeeds within timeouts.join.
  void RecordIdentityLocked(PausingTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Handles the result of a write of the run id and the term.
  void OnWrittenLocked(const IdentityWriter::Result& result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnHello(const std::shared_ptr<chief::Session>& session, const proto::Hello& said);
  void MakeRoomForSessionLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndWithoutHelloLocked(PausingTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReportLocked(int member, const proto::Report& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int MemberOfLocked(const chief::Session* session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CoordinatorOptions options_;
  // pulse_ is the coordinator's answer to a member's report. stop_pulse_ asks the member to stop.
  const chief::Session::Message pulse_, stop_pulse_;
  LogRateLimiter refused_lines_;
  std::unique_ptr<rpc::Server> server_;
  std::thread thread_;
  // Only thread_ uses the next five fields.
  MonotonicTime next_probe_;
  // True if a generation waits until the run id and the term are on the disk.
  bool to_form_ = false;
  absl::Status last_write_;  // The result of the last write of the run id and the term.
  // The time of the first attempt after the last successful write. nullopt after a success. If no
  // write was needed for ten seconds, the next attempt sets this time again.
  std::optional<PausingTime> first_try_at_;
  PausingTime write_needed_at_;  // The last time at which a write was needed.

  absl::Mutex mu_;
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  CoordinatorState state_ ABSL_GUARDED_BY(mu_);
  CoordinatorActions actions_ ABSL_GUARDED_BY(mu_);
  Registration registration_ ABSL_GUARDED_BY(mu_);
  // Sessions that have not sent a Hello, with the time at which each was opened.
  std::map<std::shared_ptr<chief::Session>, PausingTime> greeting_ ABSL_GUARDED_BY(mu_);
  std::optional<IdentityWriter::Result> finished_write_ ABSL_GUARDED_BY(mu_);
  // Used only by thread_. Must be the last field, because the writer's thread uses the fields
  // above.
  IdentityWriter identity_writer_;
};

}  // namespace muster::chief
