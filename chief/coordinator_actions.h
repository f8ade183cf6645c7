// What a coordinator does to its members: it carries decisions out, and tells the members.
#pragma once

#include <string>

#include "chief/coordinator_state.h"

namespace muster {

// REQUIRES, of all methods: the coordinator's mutex.
class CoordinatorActions {
 public:
  explicit CoordinatorActions(CoordinatorState& state) : state_(state) { BeginRoster(); }

  void Act(PausingTime now, const Decision& decision);
  // The generation of all is over, not the job.
  void Abort(PausingTime now, const std::string& why);
  // `lost`: the member that may not read its verdict any more; -1: none. No effect after the end.
  void End(PausingTime now, Verdict verdict, int lost);
  // All are told to stop at an agreed step.
  void Stop();
  // Says who is missing, to all, where others wait for them and it is time again.
  void SayWhoIsMissing(PausingTime now);
  void BeginRoster() { next_roster_ = state_.job.stage_since + state_.options.roster_interval; }

 private:
  void Form(PausingTime now, int member);
  // Independent: tells who counts on members.
  void Admitted(const NewGeneration& formed);
  void Drop(PausingTime now, int member, const std::string& why, bool told = false);
  // Drops a member that hangs or leaves, and tells its process, so that it ends.
  void Expel(PausingTime now, int member, const Verdict& why);

  CoordinatorState& state_;
  std::string last_reason_;
  PausingTime next_roster_;
};

}  // namespace muster
