// Wraps a Membership to report phases and generations to a TaskMeter.
#pragma once

#include <memory>

#include "common/telemetry/task_meter.h"
#include "common/train/membership.h"

namespace muster::membership {

// Returns a Membership that forwards all calls to `membership`. Both arguments must outlive it.
std::unique_ptr<Membership> MakeMeteredMembership(Membership* membership, TaskMeter* meter);

}  // namespace muster::membership
