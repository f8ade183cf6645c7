// The interface through which a coordinator reports single members to the Director of a
// parameter-server job. Members of such a job are independent (MembershipOptions::independent): the
// loss of one does not affect the others.
#pragma once

#include <cstdint>
#include <string>

#include "common/cluster/task.h"

namespace muster::chief {

struct AdmittedMember {
  TaskId task;
  uint64_t incarnation = 0;
  std::string data_address;  // host:port of the member's data listener.
  std::string host_id, host;
  // True if the process was a member of this run before, under an earlier chief or before its
  // session broke. It may then hold state.
  bool again = false;
};

// The coordinator calls these methods with its lock held. They must not block or call the
// coordinator.
class MemberEvents {
 public:
  virtual ~MemberEvents() = default;
  // The member has joined and may start. The first call comes once all declared members have
  // joined. After a restart of the chief, members that hold state are admitted at once. After an
  // interrupted session, this is called again for the same incarnation, without OnLost in between.
  // The member then still holds its state.
  virtual void OnAdmitted(const AdmittedMember& member) = 0;
  // The member is lost, or the coordinator has given it up. Another process may be admitted later,
  // or the same process unless `ended` is true. Called a second time, with `ended`, if the process
  // of a lost member is later known to have ended.
  virtual void OnLost(const TaskId& task, uint64_t incarnation, const std::string& why,
                      bool ended) = 0;
  // A member received SIGTERM or SIGINT. The job then finishes the current work, saves and ends.
  virtual void OnStopRequested() = 0;
};

}  // namespace muster::chief
