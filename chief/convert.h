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
// What `report`, received at `now`, says about its sender. Whether that is more than a heartbeat:
// something for which a decision may wait.
bool ApplyReport(const proto::Report& report, MonotonicTime now, MemberState* member);
proto::MemberStatus StatusOfMember(const MemberState& member, const proto::Hello& hello,
                                   MonotonicTime now);

}  // namespace muster
