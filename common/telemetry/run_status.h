// The state of a running job, which Coordinator.Status returns, as JSON and in words. `muster
// status` and the chief's status page share it. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "muster/json.h"
#include "proto/coordinator.pb.h"

namespace muster {

// Scripts depend on these keys of `muster status --json`. Unknown numbers and numbers that are not
// finite are null. A negative exit code of the verdict is unknown.
Json StatusToJson(const proto::StatusReply& reply);

// A task for which others wait.
struct Straggler {
  std::string task;
  double seconds = 0;  // Its own work in a step, before it first waits for others.
  double others = 0;   // The median of the others' work.
  double share = -1;   // Of the time that the others' steps wait, the largest. Negative: unknown.
};
std::vector<Straggler> StragglersOf(const proto::StatusReply& reply);
// Returns "worker 1 is slow: ...".
std::string StragglerText(const Straggler& straggler);

// Returns "joined", "checkpoint" and so on.
std::string EventKindName(proto::RunEvent::Kind kind);

}  // namespace muster
