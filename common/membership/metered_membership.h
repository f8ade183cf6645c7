// A Membership that tells a TaskMeter of phases and generations.
#pragma once

#include <memory>

#include "common/telemetry/task_meter.h"
#include "common/train/membership.h"

namespace muster::membership {

// Both must outlive the result.
std::unique_ptr<Membership> MakeMeteredMembership(Membership* membership, TaskMeter* meter);

}  // namespace muster::membership
