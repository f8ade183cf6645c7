// Reads what a restarted writer needs from a TensorBoard run folder.
#pragma once

#include <cstdint>
#include <string>

namespace muster::summary {

// Returns the last step with a value of `tag` in the event files of `directory`, or -1. Ignores
// values that a SessionLog START event invalidates. Reads each file up to its first damaged record.
// An unreadable file counts as empty.
int64_t LastStepOf(const std::string& directory, const std::string& tag);

}  // namespace muster::summary
