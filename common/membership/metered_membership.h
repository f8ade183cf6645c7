// Reports the phases of the training loop and the number of generations to a TaskMeter, which
// exports metrics. A generation is a period of training with fixed members.
#pragma once

#include <memory>

#include "common/telemetry/task_meter.h"
#include "common/train/membership.h"

namespace muster::membership {

// Returns a Membership that reports to `meter` and forwards all calls to `membership`. Both
// arguments must outlive the result.
std::unique_ptr<Membership> MakeMeteredMembership(Membership* membership, TaskMeter* meter);

}  // namespace muster::membership
