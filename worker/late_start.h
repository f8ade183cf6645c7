// A task that starts when its chief may have ended already: the pod that takes a lost worker's
// place after the job's last step. It must not wait for a chief that does not come again for as
// long as for one that has not started yet.
#pragma once

#include <functional>
#include <string>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster {

struct LateStart {
  std::string chief_task, chief_address;
  // How long the chief's host may answer that nobody listens there: `patience` after the last sign
  // of an owner of model_dir, and timeouts.join at most. A chief that waits for the process before
  // it to leave model_dir does not listen yet.
  Duration patience = std::chrono::minutes(2);
  Duration join = std::chrono::minutes(10);
  // After this long without a chief `finished` is asked, once: a sentence where model_dir says that
  // the run was trained to its end, else "". Null: it cannot be known.
  Duration look = std::chrono::seconds(5);
  std::function<std::string()> finished;
  // When owner.json was written last, in any unit; asked again and again. Null: there is none.
  std::function<int64_t()> owner;
  std::function<bool()> give_up;  // asked to stop
};

// Returns "" once something listens at the chief's address, or its name does not resolve, or its
// host does not answer: then the task joins as ever. Returns the sentence of `finished` where that
// has one: there is nothing to do. PeerLost: refused for too long; Preempted after `give_up`.
absl::StatusOr<std::string> AwaitChief(const LateStart& start);

}  // namespace muster
