// Between the words of a member's state machine and those of the wire (proto/coordinator.proto).
#pragma once

#include <optional>

#include "common/base/flight_recorder.h"
#include "proto/coordinator.pb.h"
#include "worker/member.h"

namespace muster {

// What a message says; nullopt: nothing that this version knows.
std::optional<membership::MemberEvent> EventOf(const proto::CoordinatorMessage& message);

proto::Hello HelloOf(const MemberOptions& options, uint64_t incarnation,
                     const membership::MemberState& state);

// `acknowledged`: of the verdict; the chief waits for this process no longer.
proto::Report ReportOf(const membership::MemberState& state, PausingTime now,
                       const FlightRecorder::Standing& standing, bool acknowledged);

}  // namespace muster
