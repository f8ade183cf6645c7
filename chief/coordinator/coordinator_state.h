// All that a coordinator knows, guarded by its mutex; what the classes around it work on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chief/coordinator/coordinator.h"
#include "chief/coordinator/session.h"
#include "chief/decision/membership_policy.h"
#include "common/base/pausing_clock.h"
#include "common/base/peer_text.h"
#include "common/base/wait.h"

namespace muster {

// What belongs to a member beside JobState: its session, and what was said over it.
struct MemberSlot {
  std::shared_ptr<Session> session;  // null: none stands
  proto::Hello hello;                // the last accepted one
  Session::Message formation;        // of the generation that it is, or was last, in
  uint64_t lost = 0;                 // the incarnation that was lost before
  uint64_t wait_logged = 0;          // the incarnation whose wait for this place was logged
  // That its process has ended, and nobody starts it again, was said while its session stood.
  struct Death {
    std::string why;
    PausingTime at;
  };
  std::optional<Death> death;
};

// REQUIRES, of all methods: the coordinator's mutex.
struct CoordinatorState {
  explicit CoordinatorState(const CoordinatorOptions& coordinator_options);

  void SendAll(const proto::CoordinatorMessage& message);
  // There is something to decide.
  void Wake() {
    event = true;
    wake.Signal();
  }
  bool IdentityKept() const {
    return kept && kept->first == admission.run_id && kept->second == admission.epoch;
  }
  // Takes a report of a task's failure, or of its death, which nobody can mend. Why it does not
  // count, "" if it does. `try_again`: FailureReply's.
  std::string TakeFailure(const proto::FailureReport& report, bool* try_again);
  // A death that was told while the session stood counts once that has broken or is silent, and
  // no more once the process was heard of later.
  void LookAtDeaths(PausingTime now);

  void LogFailure(const proto::FailureReport& report, std::string_view what);
  bool Lives(PausingTime now, const MemberState& member) const {
    return member.process.connected && now - member.process.last_heard < options.decision.suspect;
  }
  // Whether the job may go on without it.
  bool TakeDeath(int member, const std::string& message);

  const CoordinatorOptions& options;
  const std::unique_ptr<MembershipPolicy> policy;
  PausingClock clock;
  JobState job;
  std::vector<MemberSlot> slots;  // by rank
  AdmissionOptions admission;
  uint32_t counter = 0;  // of the generations of admission.epoch
  // (epoch, counter), of which either has risen.
  void TellNewest() const {
    if (options.on_newest) options.on_newest(Newest());
  }
  uint64_t Newest() const { return (static_cast<uint64_t>(admission.epoch) << 32) | counter; }
  // On the disk: run id and epoch. Generations have no others.
  std::optional<std::pair<std::string, uint32_t>> kept;
  std::string abort_reason;  // of the last one
  bool event = false;
  bool closed = false;       // all have the verdict
  LineBudget failure_lines;  // about failures that do not end the job
  CondVar wake, ended;       // on an event; when the job has ended, and when it is closed
};

}  // namespace muster
