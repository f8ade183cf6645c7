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
  double seconds = 0;  // Its own work in a step, before it first waits for others. 0: unknown.
  double others = 0;   // The median of the others' work. 0: unknown.
};
std::vector<Straggler> StragglersOf(const proto::StatusReply& reply);
// Returns "worker 1 is a straggler: " and StragglerReason.
std::string StragglerText(const Straggler& straggler);
// Returns "it needs 200 ms of a step before it waits for others, and they need 50 ms ...". The log
// and Status say the same. REQUIRES: both are positive.
std::string StragglerReason(double seconds, double others);
// Returns the median of the values that are positive, and the mean of the middle two of an even
// number. The others are unknown. 0: there are none.
double MedianOfKnown(std::vector<double> values);

// Returns "joined", "checkpoint" and so on.
std::string EventKindName(proto::RunEvent::Kind kind);

}  // namespace muster
