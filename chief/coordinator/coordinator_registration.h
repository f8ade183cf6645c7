// Registration handles the Hello, the first message of each new session (a gRPC stream between a
// process and the coordinator). Registration gives one of three answers: it refuses the process
// permanently, tells the process to retry, or accepts the process. If Registration accepts the
// process, it binds the session to the member (the task in training) and sends the job's current
// state. While the job ends, a new process receives the verdict (the outcome of the job) or must
// retry.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "chief/coordinator/admission/admission.h"
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
  // A chief without a record of its run adopts the run of the first member that holds state. The
  // chief must first write the id of this run to the disk. Returns this id while the write is
  // needed or in progress, and "" at any other time.
  const std::string& adopting() const { return adopting_; }
  // Called when the write of `run_id` has ended. Adopts the run `run_id` if `written` is OK.
  void Adopted(const std::string& run_id, const absl::Status& written);

 private:
  // Returns the devices (such as GPUs) of all joined members except `member`.
  std::vector<MemberDevices> OtherDevices(int member) const;
  // Called while the job ends. Returns true if the process was started for the next job, or for the
  // next start of this job. Such a process receives no verdict and waits for the next chief.
  bool OfTheNextStart(int member, const proto::Hello& hello, const Differences& differences) const;
  // Ends the session without a verdict, so that the process retries.
  void TellToRetry(const std::shared_ptr<Session>& session, const proto::Hello& hello, int member,
                   const std::string& why);
  void Refuse(const std::shared_ptr<Session>& session, const proto::Hello& hello, int member,
              const Refusal& refusal);
  // Begins to adopt the run of a process that holds state, if the chief has no record of a run.
  // Returns true if the chief is about to adopt this run. The process must then connect again.
  bool Adopts(PausingTime now, const proto::Hello& hello, const Differences& differences);
  // Makes the sender of `hello` the process of `member`, in place of an earlier process.
  void TakeProcess(PausingTime now, const proto::Hello& hello, int member);
  // The chief's term is the upper 32 bits of the number of each generation (a period in which a
  // fixed set of members trains). `highest_generation` is the highest generation number that a
  // process has seen. If this number is above the numbers of all generations of this chief,
  // RaiseTerm raises the term.
  void RaiseTerm(uint64_t highest_generation);
  void Bind(const std::shared_ptr<Session>& session, const proto::Hello& hello, int member);
  // Sends the job's current state to a member that has joined or rejoined.
  void CatchUp(int member);
  proto::CoordinatorMessage Welcome() const;

  CoordinatorState& state_;
  CoordinatorActions& actions_;
  // The incarnations (random numbers that identify processes) of replaced processes.
  std::set<uint64_t> superseded_;
  std::string adopting_;
  LogRateLimiter lines_;  // Limits log lines about refused processes.
};

}  // namespace muster::chief
