// The rules that differ between the two kinds of membership, for the coordinator. Synchronous
// members train in one generation, which the loss of one ends for all. Independent members (a
// parameter-server job) have a generation each, and a loss does not disturb the others. A policy
// changes only the state that it is given.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "chief/decision/decision.h"

namespace muster {

// A generation to be announced to its members.
struct NewGeneration {
  uint64_t id = 0;
  std::vector<int> members;  // By rank.
  int newest = 0;  // The index in JobState::members of the member whose state all members load.
  bool started = false;  // Training starts without waiting for connections to other members.
  bool again = false;    // With `started`: the member was admitted before and may hold state.
};

// The process of a member that opens another session.
struct ReturningProcess {
  uint64_t generation = 0;          // The generation that it is in. 0: none.
  uint64_t highest_generation = 0;  // The highest generation that it has seen.
  bool holds_state = false;         // It holds state of this run.
};

class MembershipPolicy {
 public:
  // Returns the policy that the options select.
  static std::unique_ptr<MembershipPolicy> Of(const MembershipOptions& options);
  virtual ~MembershipPolicy() = default;

  // Returns the next action.
  Decision Decide(PausingTime now, const JobState& state) const;
  // Executes Action::kForm, for `member` if the decision names one. REQUIRES: a member is ready.
  virtual NewGeneration Form(PausingTime now, uint64_t id, int member, JobState* state) const = 0;
  // The generation that `member` is in, or was in last.
  virtual uint64_t GenerationOf(const JobState& state, const MemberState& member) const = 0;
  // True if members wait for missing ones. The coordinator then logs it periodically.
  virtual bool IsHeldUp(const JobState& state) const = 0;

  // Returns the state to keep of a member whose process is lost.
  virtual MemberState Absent(PausingTime now, const JobState& state,
                             const MemberState& lost) const = 0;
  // Replace: another process takes the place of `member`, which had joined. Return: the member's
  // own process opens another session. Both return why this ends the generation of all, or "" if it
  // does not.
  virtual std::string Replace(int member, JobState* state) const = 0;
  virtual std::string Return(const ReturningProcess& process, int member,
                             JobState* state) const = 0;
  // `member` is dead and will not be started again, because of `why`. Returns true if the job may
  // continue without it.
  virtual bool GoesOnWithout(int member, const std::string& why, JobState* state) const = 0;
  // `member` failed in a way that a new process may not. Returns true if the job waits for a new
  // process.
  virtual bool WaitsForRestart(const MemberState& member) const = 0;

 protected:
  explicit MembershipPolicy(const MembershipOptions& options) : options_(options) {}
  // REQUIRES: the job has not ended.
  virtual Decision DecideNext(PausingTime now, const JobState& state) const = 0;

  const MembershipOptions options_;
};

std::unique_ptr<MembershipPolicy> SynchronousMembership(const MembershipOptions& options);
std::unique_ptr<MembershipPolicy> IndependentMembership(const MembershipOptions& options);

}  // namespace muster
