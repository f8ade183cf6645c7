// How processes become members: takes what they say first over a session, and refuses them, turns
// them away for now, or binds the session to its member and tells it the state of affairs.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "chief/admission.h"
#include "chief/coordinator_actions.h"
#include "common/base/peer_text.h"

namespace muster {

// REQUIRES, of all methods: the coordinator's mutex.
class Registration {
 public:
  Registration(CoordinatorState& state, CoordinatorActions& actions)
      : state_(state), actions_(actions) {}

  void OnHello(const std::shared_ptr<Session>& session, const proto::Hello& hello,
               const Differences& differences);
  // The run that is to be put on the disk, before the chief goes on with it; "": none.
  const std::string& adopting() const { return adopting_; }
  // That was done, or failed.
  void Adopted(const std::string& run_id, const absl::Status& written);

 private:
  // Of the members besides this one that have joined.
  std::vector<MemberDevices> OtherDevices(int member) const;
  // The job is ending. Whether the process is one of the next start of the job, to which this end
  // says nothing: it waits for the next chief.
  bool OfTheNextStart(int member, const proto::Hello& hello, const Differences& differences) const;
  // Ends the session without a verdict: the process tries again.
  void TurnAway(const std::shared_ptr<Session>& session, const proto::Hello& hello, int member,
                const std::string& why);
  void Refuse(const std::shared_ptr<Session>& session, const proto::Hello& hello, int member,
              const Refusal& refusal);
  // The run whose state this process holds is, or is being, taken for the chief's: it comes again.
  bool Adopts(PausingTime now, const proto::Hello& hello, const Differences& differences);
  // Another process is that member now.
  void TakeProcess(PausingTime now, const proto::Hello& hello, int member);
  void RaiseEpoch(uint64_t highest_generation);
  void Bind(const std::shared_ptr<Session>& session, const proto::Hello& hello, int member);
  // What a session that (re)joined has to know of the state of affairs.
  void CatchUp(int member);
  proto::CoordinatorMessage Welcome() const;

  CoordinatorState& state_;
  CoordinatorActions& actions_;
  std::set<uint64_t> superseded_;  // incarnations that were replaced
  std::string adopting_;
  LineBudget lines_;  // about those that are refused, or turned away
};

}  // namespace muster
