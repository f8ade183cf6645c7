// The state of a Coordinator (coordinator.h). The mutex of CoordinatorImpl guards this state.
// CoordinatorImpl, CoordinatorActions and Registration share it. A generation is a period in which
// a fixed set of members trains together. The term (AdmissionOptions::term) is a number above the
// terms of all earlier chiefs of the run.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chief/coordinator/coordinator.h"
#include "chief/coordinator/member_stats.h"
#include "chief/coordinator/session.h"
#include "chief/decision/membership_policy.h"
#include "common/base/pausing_clock.h"
#include "common/base/peer_text.h"
#include "common/base/wait.h"

namespace muster::chief {

// The part of a member's state that is not in JobState (chief/decision/decision.h): the member's
// session and messages. An incarnation is a random number that identifies a process.
struct MemberSlot {
  std::shared_ptr<Session> session;  // Null if the member has no session.
  proto::Hello hello;                // The last accepted Hello (the first message of a session).
  Session::Message formation;        // The message that announced the member's last generation.
  // The incarnation of the task's process that the coordinator dropped last. 0 if no process was
  // dropped, or if a process of the task has joined after that.
  uint64_t lost = 0;
  // The incarnation of the last process of this task that the coordinator asked to retry. Prevents
  // repeated log lines about the same process.
  uint64_t wait_logged = 0;
  // A report by the task's launcher that the process has ended and will not be restarted. When the
  // report arrived, the process still had a live session. The report therefore does not count yet
  // (see CheckDeaths).
  struct Death {
    std::string why;
    PausingTime at;  // When the report arrived.
  };
  std::optional<Death> death;
};

// REQUIRES for all methods: the coordinator's mutex is held.
struct CoordinatorState {
  explicit CoordinatorState(const CoordinatorOptions& coordinator_options);

  void SendAll(const proto::CoordinatorMessage& message);
  // Wakes the coordinator's thread. Called when a decision may be due.
  void Wake() {
    event = true;
    wake.Signal();
  }
  // Returns true if the current run id and term are on the disk.
  bool IdentityRecorded() const {
    return recorded_identity && recorded_identity->first == admission.run_id &&
           recorded_identity->second == admission.term;
  }
  // Handles a report that a task has failed, or that its process has ended and will not be
  // restarted. Returns "" if the report ends the job, otherwise the reason why the job continues.
  // Sets `try_again` to true if a new process reports that it cannot replace a lost process because
  // of a configuration error. The job then waits for another process. The reporting process must
  // exit with 138 (retryable), because a start on another host may succeed.
  std::string TakeFailure(const proto::FailureReport& report, bool* try_again);
  // Handles the reports in MemberSlot::death of all members. A report counts once the process's
  // session is broken or silent. CheckDeaths drops a report if the process still sends messages a
  // second after the report arrived.
  void CheckDeaths(PausingTime now);

  // Reports an event to CoordinatorOptions::on_event. `task` may be "". `step` may be -1.
  void ReportEvent(proto::RunEvent::Kind kind, const std::string& task, int64_t step,
                   const std::string& text) const;
  void LogFailure(const proto::FailureReport& report, std::string_view what);
  // Returns whether the member's session is connected and has had a recent heartbeat.
  bool Lives(PausingTime now, const MemberInfo& member) const {
    return member.process.connected && now - member.process.last_heard < options.decision.suspect;
  }
  // Called when the process of `member` has certainly ended and will not be restarted. Returns true
  // if the job may continue without the member.
  bool TakeDeath(int member, const std::string& message);

  const CoordinatorOptions& options;
  const std::unique_ptr<MembershipPolicy> policy;
  PausingClock clock;
  JobState job;
  std::vector<MemberSlot> slots;  // Indexed by rank.
  AdmissionOptions admission;
  MemberStats stats;
  uint32_t counter = 0;  // The number of generations in the current term (AdmissionOptions::term).
  // Reports Newest() to the chief. Called at the start and when the term or the counter has risen.
  void AdmitNewest() const {
    if (options.on_newest) options.on_newest(Newest());
  }
  // Returns the number of the newest generation of the term. If the term has no generation yet,
  // returns a number below the number of the term's first generation.
  uint64_t Newest() const { return (static_cast<uint64_t>(admission.term) << 32) | counter; }
  // The run id and the term of the last successful write to the disk. The coordinator forms a
  // generation only if these values equal the current run id and term.
  std::optional<std::pair<std::string, uint32_t>> recorded_identity;
  std::string abort_reason;  // Why the last generation was aborted.
  bool event = false;        // True if Wake was called since the last decision.
  // True if the job has ended and the coordinator no longer waits for acknowledgements of the
  // verdict.
  bool closed = false;
  LogRateLimiter failure_lines;  // Limits log lines about failures that do not end the job.
  // `wake` is signalled by Wake. `ended` is signalled when the job ends and when `closed` becomes
  // true.
  CondVar wake, ended;
};

}  // namespace muster::chief
