// MemberEvents is the interface through which the coordinator of a parameter-server job reports
// each admission and each loss of a member to the Director
// (chief/parameter_server/director/director.h). The members are the workers and the ps tasks. They
// are independent (MembershipOptions::independent): the loss of a member does not affect the other
// members.
#pragma once

#include <cstdint>
#include <string>

#include "common/cluster/task.h"

namespace muster::chief {

struct AdmittedMember {
  TaskId task;
  uint64_t incarnation = 0;  // A random number that identifies the process.
  std::string data_address;  // host:port of the member's data listener.
  std::string host_id, host;
  // True if the process was a member before this admission: under an earlier chief, or until its
  // session broke. Such a process may hold state of this run.
  bool again = false;
};

// The coordinator calls these methods with its lock held. The methods must not block and must not
// call the coordinator.
class MemberEvents {
 public:
  virtual ~MemberEvents() = default;
  // Called when the coordinator admits a member, which may then start. The first call comes once
  // all declared members are ready. There is one exception: after a restart of the chief, members
  // that hold state are admitted at once. After an interruption of a member's session, OnAdmitted
  // may be called again for the same incarnation without a call of OnLost in between. The member
  // then still holds its state.
  virtual void OnAdmitted(const AdmittedMember& member) = 0;
  // Called when a member is lost, or when the coordinator drops it because it hangs. `ended` is
  // true if the process has certainly ended. If `ended` is false, the same process may be admitted
  // again. If the coordinator learns after this call that the process has ended, it calls OnLost
  // again, with `ended` true. A new process of the task may be admitted in either case.
  virtual void OnLost(const TaskId& task, uint64_t incarnation, const std::string& why,
                      bool ended) = 0;
  // Called when a stop is requested, for example by a SIGTERM at a member. The Director finishes
  // the current work, saves and ends the job.
  virtual void OnStopRequested() = 0;
};

}  // namespace muster::chief
