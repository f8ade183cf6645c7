// Handles the start of a task whose chief may have ended already. An example is the pod that
// replaces a lost worker after the job's last step. The task waits less time for a chief that has
// run before than for one that has not started yet.
#pragma once

#include <functional>
#include <string>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::membership {

struct LateStart {
  std::string chief_task, chief_address;
  // The task fails after its connections were refused for `patience`. A write of owner.json starts
  // this time again: a chief does not listen yet while it waits for the previous chief to leave
  // model_dir. `join`, from timeouts.join, limits the whole wait.
  Duration patience = std::chrono::minutes(2);
  Duration join = std::chrono::minutes(10);
  // After the time `look` without a chief, `finished` is called once. It returns a sentence if the
  // run in model_dir is finished, else "". Null if this process cannot read model_dir.
  Duration look = std::chrono::seconds(5);
  std::function<std::string()> finished;
  // Returns the time of the last write of owner.json, in any unit. Called repeatedly. Null if this
  // process cannot read model_dir.
  std::function<int64_t()> owner;
  std::function<bool()> give_up;  // Returns true once a stop was requested.
};

// Blocks until it is known whether the task can join. Returns "" if the task must join as usual: a
// process listens at the chief's address, the name does not resolve, or the host does not answer.
// Returns the sentence of `finished` if the run is finished. Returns PeerLost if connections were
// refused for too long, and Preempted after `give_up`.
absl::StatusOr<std::string> AwaitChief(const LateStart& start);

}  // namespace muster::membership
