// CoordinatorActions carries out the coordinator's decisions (chief/decision/decision.h) and sends
// the resulting messages to the members. A generation is a period in which a fixed set of members
// trains together.
#pragma once

#include <string>

#include "chief/coordinator/coordinator_state.h"

namespace muster::chief {

// REQUIRES for all methods: the coordinator's mutex is held.
class CoordinatorActions {
 public:
  explicit CoordinatorActions(CoordinatorState& state) : state_(state) { BeginRoster(); }

  void Act(PausingTime now, const Decision& decision);
  // Ends the current generation for all members, because of `why`. The job continues.
  void Abort(PausingTime now, const std::string& why);
  // Ends the job. Has no effect if the job has already ended. `lost` is the member that caused the
  // end, -1 if none. If this member has been silent for MembershipOptions::suspect, the coordinator
  // does not wait for the member to acknowledge the verdict.
  void End(PausingTime now, Verdict verdict, int lost);
  // Asks all members to stop at a step that they agree on.
  void Stop();
  // Logs one line that names the missing members, and sends this line to all members. Has an effect
  // only while some members wait for missing members, and at most once per
  // CoordinatorOptions::roster_interval.
  void SendMissingMembers(PausingTime now);
  void BeginRoster() { next_roster_ = state_.job.stage_since + state_.options.roster_interval; }

 private:
  void Form(PausingTime now, int member);
  // Reports to MemberEvents that a member was admitted. Called only in a parameter-server job, in
  // which the loss of one member does not affect the other members.
  void Admitted(const NewGeneration& formed);
  // Removes the lost process of `member`, so that another process can take its place.
  void Drop(PausingTime now, int member, const std::string& why, bool asked_to_exit = false);
  // Drops a connected member that makes no progress or leaves. Sends `why` to the member's process,
  // which exits.
  void Expel(PausingTime now, int member, const Verdict& why);

  void TellVerdict() const;

  CoordinatorState& state_;
  std::string last_reason_;
  PausingTime next_roster_;
};

}  // namespace muster::chief
