// Converts between the events of a member's state machine and the messages of
// proto/coordinator.proto.
#pragma once

#include <optional>

#include "common/flight/flight_recorder.h"
#include "common/membership/member.h"
#include "proto/coordinator.pb.h"

namespace muster::membership {

// Returns nullopt for a message that this version does not know.
std::optional<MemberEvent> EventOf(const proto::CoordinatorMessage& message);

proto::Hello HelloOf(const MemberOptions& options, uint64_t incarnation, const MemberState& state);

// `acknowledged` is true if this process has received the verdict. The chief then does not wait for
// it.
proto::Report ReportOf(const MemberState& state, PausingTime now,
                       const FlightRecorder::Position& standing, bool acknowledged);

}  // namespace muster::membership
