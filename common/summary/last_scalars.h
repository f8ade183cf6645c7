// Reads where the curves of a TensorBoard run folder end.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace muster::summary {

struct LastScalar {
  int64_t step = 0;
  double value = 0;
};

// Returns the last value of each scalar tag in the event files of `directory`. A SessionLog START
// event voids the values from its step on. Reads each file up to its first damaged record, which
// may be one that is being written. An unreadable file counts as empty.
std::map<std::string, LastScalar> LastScalarsOf(const std::string& directory);

}  // namespace muster::summary
