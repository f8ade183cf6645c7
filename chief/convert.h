// Between the wire's messages and the structs of common/cluster.
#pragma once

#include <cstdint>
#include <string>

#include "common/cluster/decision.h"
#include "common/cluster/verdict.h"
#include "proto/coordinator.pb.h"

namespace muster {

proto::Verdict VerdictToProto(const Verdict& verdict);
Phase PhaseFromWire(uint32_t phase);
// The process that says so over a session that stands since `now`.
MemberProcess ProcessOf(const proto::Hello& hello, PausingTime now);
// What `report`, received at `now`, says about its sender. Whether that is more than a heartbeat:
// something for which a decision may wait.
bool ApplyReport(const proto::Report& report, PausingTime now, MemberState* member);
proto::MemberStatus StatusOfMember(const MemberState& member, PausingTime now);

}  // namespace muster
