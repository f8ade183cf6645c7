// Converts between the events of a member's state machine and the messages of
// proto/coordinator.proto.
#pragma once

#include <optional>

#include "common/flight/flight_recorder.h"
#include "common/membership/member.h"
#include "proto/coordinator.pb.h"

namespace muster {

// Returns the event of a message, nullopt if this version does not know it.
std::optional<membership::MemberEvent> EventOf(const proto::CoordinatorMessage& message);

proto::Hello HelloOf(const MemberOptions& options, uint64_t incarnation,
                     const membership::MemberState& state);

// `acknowledged`: the verdict was received, so the chief need not wait for this process any more.
proto::Report ReportOf(const membership::MemberState& state, PausingTime now,
                       const FlightRecorder::Standing& standing, bool acknowledged);

}  // namespace muster
