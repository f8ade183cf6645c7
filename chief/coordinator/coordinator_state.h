// The state of a coordinator, which the coordinator's mutex guards. CoordinatorImpl,
// CoordinatorActions and Registration share it.
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

// The part of a member's state that is not in JobState: its session, and messages of that session.
struct MemberSlot {
  std::shared_ptr<Session> session;  // Null if the member has no session.
  proto::Hello hello;                // The last accepted Hello.
  Session::Message formation;        // The proto::Formation message of its latest generation.
  uint64_t lost = 0;                 // The incarnation that was lost last.
  // The incarnation of the last process that was logged as waiting to become this member.
  uint64_t wait_logged = 0;
  // A report that the process has ended and will not be restarted. It arrived while the session was
  // connected, so it does not count yet (see CheckDeaths).
  struct Death {
    std::string why;
    PausingTime at;
  };
  std::optional<Death> death;
};

// REQUIRES for all methods: the coordinator's mutex is held.
struct CoordinatorState {
  explicit CoordinatorState(const CoordinatorOptions& coordinator_options);

  void SendAll(const proto::CoordinatorMessage& message);
  // Wakes the coordinator's thread, because a decision may be due.
  void Wake() {
    event = true;
    wake.Signal();
  }
  bool IdentityRecorded() const {
    return kept && kept->first == admission.run_id && kept->second == admission.term;
  }
  // Handles a report that a task has failed, or that its process has ended and will not be
  // restarted. Returns why the report does not count, "" if it does. Sets `try_again` for the field
  // of this name in FailureReply.
  std::string TakeFailure(const proto::FailureReport& report, bool* try_again);
  // Handles MemberSlot::death of all members. Such a report counts once the session has broken or
  // is silent. The report is dropped if the process sends anything after it.
  void CheckDeaths(PausingTime now);

  // Reports an event to CoordinatorOptions::on_event. `task` may be "", and `step` -1.
  void Tell(proto::RunEvent::Kind kind, const std::string& task, int64_t step,
            const std::string& text) const;
  void LogFailure(const proto::FailureReport& report, std::string_view what);
  bool Lives(PausingTime now, const MemberInfo& member) const {
    return member.process.connected && now - member.process.last_heard < options.decision.suspect;
  }
  // Handles the certain end of a member's process. Returns true if the job may continue without the
  // member.
  bool TakeDeath(int member, const std::string& message);

  const CoordinatorOptions& options;
  const std::unique_ptr<MembershipPolicy> policy;
  PausingClock clock;
  JobState job;
  std::vector<MemberSlot> slots;  // Indexed by rank.
  AdmissionOptions admission;
  MemberStats stats;
  uint32_t counter = 0;  // Counts generations within the term.
  // Reports Newest() to the chief. Called when the term or the counter has risen.
  void AdmitNewest() const {
    if (options.on_newest) options.on_newest(Newest());
  }
  uint64_t Newest() const { return (static_cast<uint64_t>(admission.term) << 32) | counter; }
  // The run id and the term that are on the disk. A generation is formed only if they are current.
  std::optional<std::pair<std::string, uint32_t>> kept;
  std::string abort_reason;  // Why the last generation was aborted.
  bool event = false;
  bool closed = false;           // Each member has received the verdict or no longer needs it.
  LogRateLimiter failure_lines;  // Limits log lines about failures that do not end the job.
  // `wake` is signalled on an event. `ended` is signalled when the job ends, and when `closed`
  // becomes true.
  CondVar wake, ended;
};

}  // namespace muster::chief
