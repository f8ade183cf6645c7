// Formats the reply of Coordinator.Status, the state of a job, as JSON and text for `muster status`
// and the chief's status page. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "muster/json.h"
#include "proto/coordinator.pb.h"

namespace muster {

// Returns the JSON of `muster status --json`. Scripts depend on its keys. A number is null if it is
// unknown or not finite. A negative exit code of the verdict is unknown.
Json StatusToJson(const proto::StatusReply& reply);

// A task for which other tasks wait in each step.
struct Straggler {
  std::string task;
  double seconds = 0;  // Time in a step before its first wait for others. 0: unknown.
  double others = 0;   // The median of this time over the other tasks. 0: unknown.
};
std::vector<Straggler> StragglersOf(const proto::StatusReply& reply);
// Returns "worker 1 is a straggler: " and StragglerReason.
std::string StragglerText(const Straggler& straggler);
// Returns "it needs 200 ms of a step before it waits for others, and they need 50 ms ...". The log
// and Status share this text. REQUIRES: both times are positive, in seconds.
std::string StragglerReason(double seconds, double others);
// Returns the median of the positive values; for an even number of them, the mean of the middle
// two. Values that are not positive are unknown. Returns 0 if no value is known.
double MedianOfKnown(std::vector<double> values);

// Returns the kind's name in JSON, such as "joined" or "checkpoint".
std::string EventKindName(proto::RunEvent::Kind kind);

}  // namespace muster
