// What a coordinator tells of single members where they are independent of each other
// (MembershipOptions::independent): in a parameter-server job the loss of one changes nothing for
// the others.
#pragma once

#include <cstdint>
#include <string>

#include "common/cluster/task.h"

namespace muster {

struct AdmittedMember {
  TaskId task;
  uint64_t incarnation = 0;
  std::string data_address;  // host:port of its data listener
  std::string host_id, host;
  bool again = false;  // it was a member of this run before (of an earlier chief, or a broken
                       // session): it may hold state
};

// Called on the coordinator's thread with its lock held: must not block, nor call it.
class MemberEvents {
 public:
  virtual ~MemberEvents() = default;
  // It has joined and is told to start: at first not before all declared members have joined, by a
  // restarted chief those that hold state at once. Again, for the same incarnation and without
  // OnLost between, where its session was interrupted: it holds what it held.
  virtual void OnAdmitted(const AdmittedMember& member) = 0;
  // It is gone, or was given up; another process, or, unless it has `ended`, the same one may be
  // admitted later. Once more where it was given up, and its end becomes known.
  virtual void OnLost(const TaskId& task, uint64_t incarnation, const std::string& why,
                      bool ended) = 0;
  // SIGTERM or SIGINT at some member: finish what is under way, save, and end.
  virtual void OnStopRequested() = 0;
};

}  // namespace muster
