// Converts between the state machine of a member (state_machine/member_state.h) and the messages of
// proto/coordinator.proto, which the member exchanges with the chief's coordinator.
#pragma once

#include <optional>

#include "common/flight/flight_recorder.h"
#include "common/membership/member.h"
#include "proto/coordinator.pb.h"

namespace muster::membership {

// Returns the event for a message of the coordinator. Returns nullopt if this version does not know
// the message's kind.
std::optional<MemberEvent> EventOf(const proto::CoordinatorMessage& message);

// Returns the first message of a session, the gRPC stream to the coordinator. `incarnation` is a
// random number that identifies this process.
proto::Hello HelloOf(const MemberOptions& options, uint64_t incarnation, const MemberState& state);

// Returns a heartbeat with the whole state of this process. `standing` is the position of this
// process in the sequence of collective operations. `acknowledged` is true if this process has
// received the verdict (how and why the job ended) and has delivered its flight records. The chief
// then no longer waits for this process.
proto::Report ReportOf(const MemberState& state, PausingTime now,
                       const FlightRecorder::Position& standing, bool acknowledged);

}  // namespace muster::membership
