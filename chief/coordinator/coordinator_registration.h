// Makes processes members. It takes the Hello of a session. It refuses the process, turns it away
// for now, or binds the session to its member. A bound session receives the current state.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "chief/coordinator/admission.h"
#include "chief/coordinator/coordinator_actions.h"
#include "common/base/peer_text.h"

namespace muster {

// REQUIRES for all methods: the coordinator's mutex is held.
class Registration {
 public:
  Registration(CoordinatorState& state, CoordinatorActions& actions)
      : state_(state), actions_(actions) {}

  void OnHello(const std::shared_ptr<Session>& session, const proto::Hello& hello,
               const Differences& differences);
  // The run id to write to the disk before the chief adopts that run; "" if none.
  const std::string& adopting() const { return adopting_; }
  // Reports that the write of adopting() has succeeded or failed.
  void Adopted(const std::string& run_id, const absl::Status& written);

 private:
  // Devices of the other members that have joined.
  std::vector<MemberDevices> OtherDevices(int member) const;
  // Called while the job ends. Returns whether the process belongs to the job's next start. Such a
  // process receives no verdict and waits for the next chief.
  bool OfTheNextStart(int member, const proto::Hello& hello, const Differences& differences) const;
  // Ends the session without a verdict, so that the process retries.
  void TurnAway(const std::shared_ptr<Session>& session, const proto::Hello& hello, int member,
                const std::string& why);
  void Refuse(const std::shared_ptr<Session>& session, const proto::Hello& hello, int member,
              const Refusal& refusal);
  // Returns whether the chief adopts, or is adopting, the run whose state this process holds. The
  // process then connects again.
  bool Adopts(PausingTime now, const proto::Hello& hello, const Differences& differences);
  // Makes the process that sent `hello` the member, in place of an earlier one.
  void TakeProcess(PausingTime now, const proto::Hello& hello, int member);
  void RaiseEpoch(uint64_t highest_generation);
  void Bind(const std::shared_ptr<Session>& session, const proto::Hello& hello, int member);
  // Sends the current state to a session that has joined or rejoined.
  void CatchUp(int member);
  proto::CoordinatorMessage Welcome() const;

  CoordinatorState& state_;
  CoordinatorActions& actions_;
  std::set<uint64_t> superseded_;  // Incarnations that were replaced.
  std::string adopting_;
  LineBudget lines_;  // Limits the log lines about processes that are refused or turned away.
};

}  // namespace muster
