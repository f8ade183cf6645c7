// Reads a TensorBoard run folder, as far as a restarted writer needs it.
#pragma once

#include <cstdint>
#include <string>

namespace muster::summary {

// Returns the last step that has a point under `tag` in the event files of `directory`, or -1.
// Points that a SessionLog START event invalidates do not count. A file ends at its first damaged
// record, and an unreadable file counts as empty.
int64_t LastStepOf(const std::string& directory, const std::string& tag);

}  // namespace muster::summary
