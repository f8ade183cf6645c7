// Converts between the messages of proto/coordinator.proto and the structs of
// chief/decision/decision.h and common/cluster.
#pragma once

#include <cstdint>
#include <string>

#include "chief/decision/decision.h"
#include "common/cluster/verdict.h"
#include "proto/coordinator.pb.h"

namespace muster::chief {

proto::Verdict VerdictToProto(const Verdict& verdict);
Phase PhaseFromWire(uint32_t phase);
// Returns the process that sent `hello`, the first message of a session. `hello` arrived at `now`.
MemberProcess ProcessOf(const proto::Hello& hello, PausingTime now);
// Updates `member`, which sent `report`. The report arrived at `now`. Returns true if the report
// changes `member` in a way that may require a new decision of the coordinator.
bool ApplyReport(const proto::Report& report, PausingTime now, MemberInfo* member);
proto::MemberStatus StatusOfMember(const MemberInfo& member, PausingTime now);

}  // namespace muster::chief
