// Converts between the wire's messages and the structs of common/cluster.
#pragma once

#include <cstdint>
#include <string>

#include "chief/decision/decision.h"
#include "common/cluster/verdict.h"
#include "proto/coordinator.pb.h"

namespace muster {

proto::Verdict VerdictToProto(const Verdict& verdict);
Phase PhaseFromWire(uint32_t phase);
// Returns the process that sent `hello` over a session that was opened at `now`.
MemberProcess ProcessOf(const proto::Hello& hello, PausingTime now);
// Applies `report`, received at `now`, to its sender. Returns whether it is more than a heartbeat,
// so that a decision may depend on it.
bool ApplyReport(const proto::Report& report, PausingTime now, MemberState* member);
proto::MemberStatus StatusOfMember(const MemberState& member, PausingTime now);

}  // namespace muster
