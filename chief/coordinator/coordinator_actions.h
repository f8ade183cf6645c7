// Carries out the coordinator's decisions and notifies the members.
#pragma once

#include <string>

#include "chief/coordinator/coordinator_state.h"

namespace muster::chief {

// REQUIRES for all methods: the coordinator's mutex is held.
class CoordinatorActions {
 public:
  explicit CoordinatorActions(CoordinatorState& state) : state_(state) { BeginRoster(); }

  void Act(PausingTime now, const Decision& decision);
  // Ends the current generation of all members, but not the job.
  void Abort(PausingTime now, const std::string& why);
  // Ends the job. Has no effect if the job has already ended. `lost` is a lost member, which may be
  // unable to receive the verdict; -1 if none.
  void End(PausingTime now, Verdict verdict, int lost);
  // Asks all members to stop at an agreed step.
  void Stop();
  // Logs which members are missing, and sends this line to all members. Has no effect unless other
  // members wait for them and the roster interval has passed.
  void SendMissingMembers(PausingTime now);
  void BeginRoster() { next_roster_ = state_.job.stage_since + state_.options.roster_interval; }

 private:
  void Form(PausingTime now, int member);
  // Reports the admission of independent members to MemberEvents.
  void Admitted(const NewGeneration& formed);
  void Drop(PausingTime now, int member, const std::string& why, bool asked_to_exit = false);
  // Drops a member that hangs or leaves. Sends `why` to the member's process, which then exits.
  void Expel(PausingTime now, int member, const Verdict& why);

  void TellVerdict() const;

  CoordinatorState& state_;
  std::string last_reason_;
  PausingTime next_roster_;
};

}  // namespace muster::chief
