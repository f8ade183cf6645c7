// Bounds on the messages of members, which no process of this version comes near, and text that is
// safe to log. Pure functions. They are called before any costly work: without the coordinator's
// lock and before any JSON is parsed.
#pragma once

#include <string>
#include <string_view>

#include "proto/coordinator.pb.h"

namespace muster {

// Limits of a session's first message, and of later ones.
inline constexpr size_t kMostHelloBytes = 1 << 20;
inline constexpr size_t kMostReportBytes = 64 << 10;

// Returns one sentence about what is implausible in `hello`, "" if nothing.
std::string WrongWith(const proto::Hello& hello);

// Returns whether `id` is empty or a run id that some version of Muster makes.
bool IsRunId(std::string_view id);

// Cleans the text fields that go into the log, verdicts and files.
void CleanText(proto::Hello* hello);
void CleanText(proto::Report* report);
void CleanText(proto::FailureReport* report);

}  // namespace muster
