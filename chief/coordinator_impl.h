// The coordinator's insides: one state under one lock, two files of code. coordinator.cc decides
// and acts (a thread of its own); coordinator_sessions.cc takes what members and RPCs say (on
// gRPC's threads) and answers them.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "chief/coordinator.h"
#include "chief/session.h"

namespace muster {

class CoordinatorImpl final : public Coordinator,
                              public Session::Handler,
                              public proto::Coordinator::CallbackService {
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

  // Session::Handler
  void OnMessage(const std::shared_ptr<muster::Session>& session,
                 const proto::MemberMessage& message) override;
  void OnBroken(const std::shared_ptr<muster::Session>& session) override;

  // proto::Coordinator
  grpc::ServerBidiReactor<proto::MemberMessage, proto::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ReportFailure(grpc::CallbackServerContext* context,
                                          const proto::FailureReport* request,
                                          proto::FailureReply* reply) override;
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const proto::StatusRequest* request,
                                   proto::StatusReply* reply) override;

 private:
  struct Slot {
    std::shared_ptr<muster::Session> session;  // null: none stands
    proto::Hello hello;                        // the last accepted one
    uint64_t lost = 0;                         // the incarnation that was lost before
    muster::Session::Message formation;        // independent: of itself
    uint64_t admitted = 0;                     // ... the incarnation that others count on
  };

  void Run();
  void ProbeBroken();
  void Act(MonotonicTime now, const Decision& decision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FormLocked(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Independent: forms a generation of it alone, and starts it.
  void AdmitLocked(MonotonicTime now, int member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Independent: another process takes its place.
  void ReplaceLocked(int member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropLocked(MonotonicTime now, int member, const std::string& why, bool told = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drops a member that hangs, and tells its process, so that it ends.
  void ExpelLocked(MonotonicTime now, int member, const Verdict& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AbortLocked(MonotonicTime now, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLocked(MonotonicTime now, Verdict verdict, int lost) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool ServerMissingLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RosterLocked(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void HelloLocked(const std::shared_ptr<muster::Session>& session, const proto::Hello& hello)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AdoptRunLocked(MonotonicTime now, const proto::Hello& hello)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool GaveUpLocked(const MemberState& m, const proto::Hello& hello) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BindLocked(const std::shared_ptr<muster::Session>& session, const proto::Hello& hello,
                  int member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReportLocked(int member, const proto::Report& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What a session that (re)joined has to know of the state of affairs.
  void CatchUpLocked(int member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  proto::CoordinatorMessage WelcomeLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendAllLocked(proto::CoordinatorMessage message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Why a failure report is not taken, "" if it is.
  std::string TakeDeathLocked(const proto::FailureReport& report, MemberState* member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string TakeFailureLocked(const proto::FailureReport& report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int MemberOfLocked(const muster::Session* session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StopLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    event_ = true;
    wake_.Signal();
  }

  const CoordinatorOptions options_;
  const muster::Session::Message pulse_, stop_pulse_;  // one a heartbeat
  std::unique_ptr<rpc::Server> server_;
  std::thread thread_;

  absl::Mutex mu_;
  absl::CondVar wake_, closed_wake_;
  bool event_ ABSL_GUARDED_BY(mu_) = false;
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  JobState state_ ABSL_GUARDED_BY(mu_);
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mu_);  // by rank
  uint32_t epoch_ ABSL_GUARDED_BY(mu_);
  uint32_t counter_ ABSL_GUARDED_BY(mu_) = 0;
  muster::Session::Message formation_ ABSL_GUARDED_BY(mu_);  // of all, of state_.generation
  std::string last_reason_ ABSL_GUARDED_BY(mu_);
  std::string abort_reason_ ABSL_GUARDED_BY(mu_);  // of the last generation
  AdmissionOptions admission_ ABSL_GUARDED_BY(mu_);
  std::set<uint64_t> superseded_ ABSL_GUARDED_BY(mu_);  // incarnations that were replaced
  MonotonicTime next_roster_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster
