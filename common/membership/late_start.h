// Start of a task whose chief may already have ended, such as the pod that replaces a lost worker
// after the job's last step. It must not wait as long for a chief that does not return as for one
// that has not started yet.
#pragma once

#include <functional>
#include <string>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster {

struct LateStart {
  std::string chief_task, chief_address;
  // Time for which the chief's host may refuse connections: `patience` after the last write of
  // model_dir's owner. The limit is `join`, which is timeouts.join. A chief does not listen while
  // it waits for the previous process to leave model_dir.
  Duration patience = std::chrono::minutes(2);
  Duration join = std::chrono::minutes(10);
  // `finished` is called once after this time without a chief. It returns a sentence if model_dir
  // says that the run has been trained to its end, else "". Null if that cannot be known.
  Duration look = std::chrono::seconds(5);
  std::function<std::string()> finished;
  // Returns when owner.json was last written, in any unit. Called repeatedly. Null if there is no
  // owner.json.
  std::function<int64_t()> owner;
  std::function<bool()> give_up;  // Returns true once a stop was requested.
};

// Blocks until the chief can be reached or will not be. Returns "" if something listens at the
// chief's address, or its name does not resolve, or its host does not answer. The task then joins
// as usual. Returns the sentence of `finished` if there is nothing to do. Returns PeerLost if
// connections were refused for too long, and Preempted after `give_up`.
absl::StatusOr<std::string> AwaitChief(const LateStart& start);

}  // namespace muster
