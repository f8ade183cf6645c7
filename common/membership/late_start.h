// Handles the start of a task whose chief may already have ended for good. An example is a
// Kubernetes pod that replaces a lost worker after the job's final step.
#pragma once

#include <functional>
#include <string>

#include "common/base/clock.h"
#include "common/job/timeouts.h"
#include "muster/status.h"

namespace muster::membership {

struct LateStart {
  std::string chief_task, chief_address;
  // AwaitChief fails if the chief's host refuses connections for this long. The time starts again
  // whenever a chief writes owner.json, the file in model_dir that names the chief's process. A new
  // chief may write this file before it listens, while it waits for the previous chief to leave.
  Duration patience = std::chrono::minutes(2);
  Duration join = Timeouts().join;  // The limit of the whole wait.
  // The interval between checks of model_dir. At the first check, AwaitChief calls `finished`.
  Duration look = std::chrono::seconds(5);
  // Returns a sentence if the run in model_dir is finished. Otherwise returns "". Null: the job has
  // no model_dir.
  std::function<std::string()> finished;
  // Returns the time of the last write to owner.json, in any unit. Called at the start and at each
  // check of model_dir. Null: the job has no model_dir.
  std::function<int64_t()> owner;
  std::function<bool()> give_up;  // Returns true after a stop request.
};

// Blocks while the chief's host refuses connections. Returns "" as soon as a connection is not
// refused: a process listens, the name does not resolve, or the host does not answer. In these
// cases, the task must join as usual. Returns the sentence of `finished` if the run is finished.
// Returns PeerLost after the time `patience` or the time `join`. Returns Preempted if `give_up`
// returns true.
absl::StatusOr<std::string> AwaitChief(const LateStart& start);

}  // namespace muster::membership
