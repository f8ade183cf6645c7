// Registration handles the Hello of each new session. It refuses the process permanently, makes the
// process retry, or binds the session to its member. A bound session receives the job's current
// state.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "chief/coordinator/admission.h"
#include "chief/coordinator/coordinator_actions.h"
#include "common/base/peer_text.h"

namespace muster::chief {

// REQUIRES for all methods: the coordinator's mutex is held.
class Registration {
 public:
  Registration(CoordinatorState& state, CoordinatorActions& actions)
      : state_(state), actions_(actions) {}

  void OnHello(const std::shared_ptr<Session>& session, const proto::Hello& hello,
               const Differences& differences);
  // Returns the run id that must be on the disk before the chief adopts that run; "" if none.
  const std::string& adopting() const { return adopting_; }
  // Called when the write of adopting() has ended. Adopts the run if `written` is OK.
  void Adopted(const std::string& run_id, const absl::Status& written);

 private:
  // Returns the devices of all joined members except `member`.
  std::vector<MemberDevices> OtherDevices(int member) const;
  // Called while the job ends. Returns whether the process was started for the job's next run
  // rather than this one. Such a process receives no verdict and waits for the next chief.
  bool OfTheNextStart(int member, const proto::Hello& hello, const Differences& differences) const;
  // Ends the session without a verdict, so that the process retries.
  void TellToRetry(const std::shared_ptr<Session>& session, const proto::Hello& hello, int member,
                   const std::string& why);
  void Refuse(const std::shared_ptr<Session>& session, const proto::Hello& hello, int member,
              const Refusal& refusal);
  // Returns whether the chief has adopted, or is about to adopt, the run whose state this process
  // holds. If true, the process must connect again.
  bool Adopts(PausingTime now, const proto::Hello& hello, const Differences& differences);
  // Makes the sender of `hello` the process of `member`, in place of an earlier process.
  void TakeProcess(PausingTime now, const proto::Hello& hello, int member);
  void RaiseTerm(uint64_t highest_generation);
  void Bind(const std::shared_ptr<Session>& session, const proto::Hello& hello, int member);
  // Sends the job's current state to a member that has joined or rejoined.
  void CatchUp(int member);
  proto::CoordinatorMessage Welcome() const;

  CoordinatorState& state_;
  CoordinatorActions& actions_;
  std::set<uint64_t> superseded_;  // Incarnations of processes that were replaced.
  std::string adopting_;
  LogRateLimiter lines_;  // Limits log lines about refused processes.
};

}  // namespace muster::chief
