// Formats the state of a job. The state is the reply of the RPC Coordinator.Status. `muster status`
// and the chief's status page show the results. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "muster/json.h"
#include "proto/coordinator.pb.h"

namespace muster {

// Returns the JSON of `muster status --json`. Scripts depend on its keys. Numbers that are unknown
// or not finite become null. A negative exit code in the verdict counts as unknown.
Json StatusToJson(const proto::StatusReply& reply);

// A task for which other tasks wait in each step.
struct Straggler {
  std::string task;
  // Time in seconds that the task computes in a step before it first waits for other tasks. 0 if
  // unknown.
  double seconds = 0;
  double others = 0;  // The median of the same time over the other tasks. 0 if unknown.
};
std::vector<Straggler> StragglersOf(const proto::StatusReply& reply);
// Returns "worker 1 is a straggler: ", followed by the result of StragglerReason. If a time is
// unknown, returns "worker 1 is a straggler: the others wait for it".
std::string StragglerText(const Straggler& straggler);
// Returns "it needs 200 ms of a step before it waits for others, and they need 50 ms ...". The
// arguments are times in seconds. REQUIRES: both are positive.
std::string StragglerReason(double seconds, double others);
// Returns the median of the positive values. For an even number of positive values, this is the
// mean of the middle two. Ignores all other values, because a value of 0 or less means "unknown".
// Returns 0 if no value is positive.
double MedianOfKnown(std::vector<double> values);

// Returns the kind's name in JSON, such as "joined" or "checkpoint".
std::string EventKindName(proto::RunEvent::Kind kind);

}  // namespace muster
