// Converts between the messages of proto/coordinator.proto and the structs of decision.h and
// common/cluster.
#pragma once

#include <cstdint>
#include <string>

#include "chief/decision/decision.h"
#include "common/cluster/verdict.h"
#include "proto/coordinator.pb.h"

namespace muster::chief {

proto::Verdict VerdictToProto(const Verdict& verdict);
Phase PhaseFromWire(uint32_t phase);
// Returns the process that sent `hello` over a session that was opened at `now`.
MemberProcess ProcessOf(const proto::Hello& hello, PausingTime now);
// Updates the sender's state with `report`, which arrived at `now`. Returns true if the report is
// more than a heartbeat, so a new decision may be due.
bool ApplyReport(const proto::Report& report, PausingTime now, MemberInfo* member);
proto::MemberStatus StatusOfMember(const MemberInfo& member, PausingTime now);

}  // namespace muster::chief
