// Reads back what a run folder of TensorBoard holds, as far as a restarted writer needs it.
#pragma once

#include <cstdint>
#include <string>

namespace muster::summary {

// The last step that has a point under `tag` in the event files of `directory`, after what their
// SessionLog START events make void; -1: none. A file ends where its first damaged record is, and
// one that cannot be read holds nothing.
int64_t LastStepOf(const std::string& directory, const std::string& tag);

}  // namespace muster::summary
