// Formats the state of a run as lines for a terminal. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "proto/coordinator.pb.h"

namespace muster::status {

// Returns the output of `muster status`: the run, its progress, the tasks, the slow tasks
// (stragglers), the last fault and the last `max_events` events.
std::vector<std::string> StatusLines(const proto::StatusReply& reply, size_t max_events);
// Returns `line`, cut to at most `columns` columns.
std::string Cut(const std::string& line, size_t columns);

}  // namespace muster::status
