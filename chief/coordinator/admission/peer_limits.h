// These functions check messages of members (tasks in training) against generous limits, and make
// the text in the messages safe for the log. All functions are pure. The coordinator checks a Hello
// before it parses the JSON in the Hello, and without holding its lock.
#pragma once

#include <string>
#include <string_view>

#include "proto/coordinator.pb.h"

namespace muster::chief {

// Limits for the size in bytes of a session's first message (the Hello), and of each further
// message (a report).
inline constexpr size_t kMaxHelloBytes = 1 << 20;
inline constexpr size_t kMaxReportBytes = 64 << 10;

// Returns one sentence about the first field of `hello` that exceeds a limit or is malformed, or ""
// if there is no such field.
std::string ProblemWith(const proto::Hello& hello);

// Returns whether `id` is empty or has the form of a run id of any version of Muster.
bool IsRunId(std::string_view id);

// CleanText makes the text in a message printable, because the coordinator writes this text to the
// log, to verdicts and to files. CleanStats does the same for measurements, and drops entries that
// exceed limits.
void CleanText(proto::Hello* hello);
void CleanStats(proto::TaskStats* stats);
void CleanText(proto::Report* report);
void CleanText(proto::FailureReport* report);

}  // namespace muster::chief
