// What the decisions for members that train together (decision_synchronous.cc,
// decision_elastic.cc) and for independent ones (decision_independent.cc) are made of.
#pragma once

#include <optional>
#include <string>

#include "common/cluster/decision.h"

namespace muster {

Decision Make(Action action, std::string reason, int member = -1);
Decision Wait(std::string reason = "");
Decision End(int member, Verdict verdict);
// A verdict over that member.
Verdict About(const MemberState& m, ExitCode code, std::string message);

struct MemberLoss {
  int member = -1;
  std::string why;
};
// The one that was lost first. `suspected`: others could not reach somebody.
std::optional<MemberLoss> FirstLost(PausingTime now, const JobState& s, const MembershipOptions& o,
                                    bool suspected);
// How long a member may be in the phase that it is in; zero: as long as it takes, for it waits for
// others, is through, or is not there, or the job says so.
Duration PhaseLimit(const MemberState& m, const MembershipOptions& o);
// "in phase 'data' for 12.0 s; timeouts.phase.data is 10 s".
std::string PhaseTooLong(Phase phase, Duration age, Duration limit);
// The first own failure that anybody reported.
std::optional<Decision> OwnFailure(const JobState& s);
// There is no state yet that would be lost.
bool Fresh(const JobState& s);
// Who has not come yet may hold state, of a chief before this one.
bool AwaitsSurvivors(PausingTime now, const JobState& s, const MembershipOptions& o);

// "worker 3, worker 4 and 17 others". Long lists help nobody, and this one may be made for each of
// a thousand messages.
class List {
 public:
  bool full() const { return count_ >= kShown; }
  bool empty() const { return count_ == 0; }
  void Add(const std::string& item);
  void AddTask(const MemberState& m) { Add(full() ? "" : m.declared.task.Spoken()); }
  std::string text() const;

 private:
  static constexpr int kShown = 16;
  int count_ = 0;
  std::string text_;
};

// Elastic: it was lost in its first step again and again, and is not taken in yet.
bool Held(PausingTime now, const MemberState& m, const MembershipOptions& o);
// Why a generation of fewer members than declared may be formed now; "" if it may not.
// `with_held`: of all that are ready.
std::string FewerWillDo(PausingTime now, const JobState& s, const MembershipOptions& o,
                        bool with_held);
// Elastic: a generation of fewer than all takes in those that have come since.
std::optional<Decision> Newcomer(PausingTime now, const JobState& s, const MembershipOptions& o);
// Elastic: a member that was asked to stop leaves, where enough others remain; else all stop.
std::optional<Decision> Leaver(const JobState& s, const MembershipOptions& o);

// The end of a job whose members did not come in time.
Decision NotAllCame(PausingTime now, const JobState& s, const MembershipOptions& o);

}  // namespace muster
