// What members may say: bounds that no process of this version comes near, and text that is fit for
// the log. Pure functions, called before anything that costs: without the coordinator's lock, and
// before any JSON is parsed.
#pragma once

#include <string>
#include <string_view>

#include "proto/coordinator.pb.h"

namespace muster {

// Of a session's first message, and of those after it.
inline constexpr size_t kMostHelloBytes = 1 << 20;
inline constexpr size_t kMostReportBytes = 64 << 10;

// "" or one sentence: what no member says.
std::string WrongWith(const proto::Hello& hello);

// A run id as versions of Muster make them, or "".
bool IsRunId(std::string_view id);

// Text of these goes into the log, verdicts and files.
void CleanText(proto::Hello* hello);
void CleanText(proto::Report* report);
void CleanText(proto::FailureReport* report);

}  // namespace muster
