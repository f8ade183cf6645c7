// How the members of a job belong together: they train in one generation, which the loss of one
// ends for all (synchronous), or each is on its own, and nobody else is disturbed (independent: a
// parameter-server job). What differs between the two, for the coordinator; changes nothing but the
// state that it is given.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/cluster/decision.h"

namespace muster {

// A generation to be announced to its members.
struct NewGeneration {
  uint64_t id = 0;
  std::vector<int> members;  // by rank
  int newest = 0;            // of JobState::members: whose state all go on with
  bool started = false;      // nobody waits for another one's links
  bool again = false;        // started: the member was in before, and may hold state
};

// The process of a member opens another session.
struct ReturningProcess {
  uint64_t generation = 0;          // that it is in; 0: in none
  uint64_t highest_generation = 0;  // that it has seen
  bool holds_state = false;         // of this run
};

class MembershipPolicy {
 public:
  // Of the kind that the options say.
  static std::unique_ptr<MembershipPolicy> Of(const MembershipOptions& options);
  virtual ~MembershipPolicy() = default;

  // What to do next.
  Decision Decide(PausingTime now, const JobState& state) const;
  // Action::kForm, of `member` where the decision names one. REQUIRES: somebody is ready.
  virtual NewGeneration Form(PausingTime now, uint64_t id, int member, JobState* state) const = 0;
  // Which one `member` is in, or was in last.
  virtual uint64_t GenerationOf(const JobState& state, const MemberState& member) const = 0;
  // Others wait for members that are missing: that is worth a line now and then.
  virtual bool IsHeldUp(const JobState& state) const = 0;

  // What is left of a member whose process is lost.
  virtual MemberState Absent(PausingTime now, const JobState& state,
                             const MemberState& lost) const = 0;
  // Another process comes in the place of `member`, which had joined; or its own one comes again.
  // Why the generation of all ends with that, "" if it does not.
  virtual std::string Replace(int member, JobState* state) const = 0;
  virtual std::string Return(const ReturningProcess& process, int member,
                             JobState* state) const = 0;
  // `member` is dead and nobody starts it again, for `why`: whether the job may go on without.
  virtual bool GoesOnWithout(int member, const std::string& why, JobState* state) const = 0;
  // It failed in a way that another process may not: whether the job waits for that one.
  virtual bool WaitsForRestart(const MemberState& member) const = 0;

 protected:
  explicit MembershipPolicy(const MembershipOptions& options) : options_(options) {}
  // REQUIRES: the job has not ended.
  virtual Decision DecideNext(PausingTime now, const JobState& state) const = 0;

  const MembershipOptions options_;
};

// Of one kind each.
std::unique_ptr<MembershipPolicy> SynchronousMembership(const MembershipOptions& options);
std::unique_ptr<MembershipPolicy> IndependentMembership(const MembershipOptions& options);

}  // namespace muster
