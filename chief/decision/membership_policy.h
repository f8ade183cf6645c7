// A MembershipPolicy has the coordinator's rules for one of the two kinds of membership. A
// generation is a period in which a fixed set of members trains together. Synchronous members train
// in one common generation, and the loss of a member ends this generation for all. Independent
// members (parameter-server jobs) have one generation each, and the loss of a member does not
// affect the others. A MembershipPolicy has no state of its own: it changes only the JobState that
// the caller passes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "chief/decision/decision.h"

namespace muster::chief {

// A generation that the coordinator is about to announce to its members.
struct NewGeneration {
  uint64_t id = 0;
  std::vector<int> members;  // Ordered by rank.
  // The index in JobState::members of the member with the newest state. All members load this
  // state.
  int newest = 0;
  // True if training starts at once, because the members need no connections to each other.
  bool started = false;
  // Used only if `started` is true. True if the only member of the generation may hold state,
  // because it was admitted before.
  bool again = false;
};

// A process that has had a session and opens a new session.
struct ReturningProcess {
  uint64_t generation = 0;          // The number of the process's current generation. 0: none.
  uint64_t highest_generation = 0;  // The highest generation that the process has seen.
  bool holds_state = false;         // True if the process holds state of this run.
};

class MembershipPolicy {
 public:
  // Returns the policy that the options select.
  static std::unique_ptr<MembershipPolicy> Of(const MembershipOptions& options);
  virtual ~MembershipPolicy() = default;

  // Returns the next action.
  Decision Decide(PausingTime now, const JobState& state) const;
  // Carries out Action::kForm: changes `state` and returns the new generation with the number `id`.
  // `member` is Decision::member. REQUIRES: at least one member is ready.
  virtual NewGeneration Form(PausingTime now, uint64_t id, int member, JobState* state) const = 0;
  // Returns the number of the current generation of `member`. If the generation has ended, returns
  // the number of the last generation.
  virtual uint64_t GenerationOf(const JobState& state, const MemberInfo& member) const = 0;
  // Returns true if some members wait for missing members. The coordinator then logs the names of
  // the missing members periodically.
  virtual bool IsHeldUp(const JobState& state) const = 0;

  // Returns the data that the coordinator keeps about a member after its process is lost.
  virtual MemberInfo Absent(PausingTime now, const JobState& state,
                            const MemberInfo& lost) const = 0;
  // Replace is called when a new process of `member` takes the place of a joined process. Return is
  // called when the same process of `member` opens another session. If the event ends the
  // generation of all members, both methods return the reason. If the other members' generations
  // continue, both return "".
  virtual std::string Replace(int member, JobState* state) const = 0;
  virtual std::string Return(const ReturningProcess& process, int member,
                             JobState* state) const = 0;
  // Called when the process of `member` has ended and will not be restarted. `why` is the reason.
  // Returns true if the job may continue without the member.
  virtual bool ContinueWithout(int member, const std::string& why, JobState* state) const = 0;
  // Called when `member` has failed with an error that a restart may fix. Returns true if the job
  // waits for a new process of this task, false if the job ends.
  virtual bool WaitsForRestart(const MemberInfo& member) const = 0;

 protected:
  explicit MembershipPolicy(const MembershipOptions& options) : options_(options) {}
  // REQUIRES: the job has not ended.
  virtual Decision DecideNext(PausingTime now, const JobState& state) const = 0;

  const MembershipOptions options_;
};

std::unique_ptr<MembershipPolicy> SynchronousMembership(const MembershipOptions& options);
std::unique_ptr<MembershipPolicy> IndependentMembership(const MembershipOptions& options);

}  // namespace muster::chief
