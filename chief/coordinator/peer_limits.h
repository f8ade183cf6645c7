// Checks the messages of members against generous limits, and cleans their text for the log. All
// functions are pure. Callers use them before costly work: without the coordinator's lock and
// before they parse any JSON.
#pragma once

#include <string>
#include <string_view>

#include "proto/coordinator.pb.h"

namespace muster::chief {

// Limits for a session's first message, and for each later one.
inline constexpr size_t kMaxHelloBytes = 1 << 20;
inline constexpr size_t kMaxReportBytes = 64 << 10;

// Returns one sentence about the first field of `hello` that exceeds a limit or is malformed, "" if
// none does.
std::string ProblemWith(const proto::Hello& hello);

// Returns whether `id` is empty or has the form of a run id of any version of Muster.
bool IsRunId(std::string_view id);

// Cleans the text fields that go into the log, verdicts and files.
void CleanText(proto::Hello* hello);
// Drops entries beyond the limits, and makes text printable.
void CleanStats(proto::TaskStats* stats);
void CleanText(proto::Report* report);
void CleanText(proto::FailureReport* report);

}  // namespace muster::chief
