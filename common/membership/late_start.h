// Handles the start of a task whose chief may have ended already. An example is a Kubernetes pod
// that replaces a lost worker after the job's final step. The pod would wait for the chief in vain.
#pragma once

#include <functional>
#include <string>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::membership {

struct LateStart {
  std::string chief_task, chief_address;
  // AwaitChief fails if the chief's host refuses connections for this long. The time starts again
  // whenever a chief writes owner.json, the file in model_dir that names the chief's process. A new
  // chief may write this file before it listens, while it waits for the previous chief to leave.
  Duration patience = std::chrono::minutes(2);
  // The limit of the whole wait: the job's timeouts.join.
  Duration join = std::chrono::minutes(10);
  // The interval between looks at model_dir. At the first look, AwaitChief calls `finished`.
  Duration look = std::chrono::seconds(5);
  // Returns a sentence if the run in model_dir is finished, and "" if not. Null: the job has no
  // model_dir.
  std::function<std::string()> finished;
  // Returns the time of the last write to owner.json, in any unit. Called at each look. Null: the
  // job has no model_dir.
  std::function<int64_t()> owner;
  std::function<bool()> give_up;  // Returns true after a stop request.
};

// Blocks while the chief's host refuses connections. Returns "" as soon as a connection is not
// refused: a process listens, the name does not resolve, or the host does not answer. The task must
// join as usual in these cases. Returns the sentence of `finished` if the run is finished. Returns
// PeerLost when the time `patience` or the time `join` has passed. Returns Preempted if `give_up`
// returns true.
absl::StatusOr<std::string> AwaitChief(const LateStart& start);

}  // namespace muster::membership
