// Events of single members, which a coordinator reports where members are independent
// (MembershipOptions::independent). In a parameter-server job the loss of one member does not
// affect the others.
#pragma once

#include <cstdint>
#include <string>

#include "common/cluster/task.h"

namespace muster {

struct AdmittedMember {
  TaskId task;
  uint64_t incarnation = 0;
  std::string data_address;  // host:port of its data listener.
  std::string host_id, host;
  // It was a member of this run before, under an earlier chief or over a broken session, so it may
  // hold state.
  bool again = false;
};

// The coordinator calls these on its thread with its lock held. They must not block or call the
// coordinator.
class MemberEvents {
 public:
  virtual ~MemberEvents() = default;
  // The member has joined and may start. The first call comes once all declared members have
  // joined. After a chief's restart, members that hold state are admitted at once. Called again for
  // the same incarnation, without OnLost in between, after an interrupted session; the member still
  // holds its state.
  virtual void OnAdmitted(const AdmittedMember& member) = 0;
  // The member is gone or was given up. Another process may be admitted later, and also the same
  // one unless it has `ended`. Called a second time if a member that was given up is then known to
  // have ended.
  virtual void OnLost(const TaskId& task, uint64_t incarnation, const std::string& why,
                      bool ended) = 0;
  // A member received SIGTERM or SIGINT. The job finishes the current work, saves and ends.
  virtual void OnStopRequested() = 0;
};

}  // namespace muster
