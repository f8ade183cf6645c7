// Buffers that are not floating point, such as counters and index tables. Parameter servers do not
// hold them: each worker has its own. These functions convert them to bytes, keyed by name
// ("<model>.<buffer>"), and back.
#pragma once

#include <map>
#include <string>

#include "common/train/replica/replica.h"

namespace muster {

std::map<std::string, std::string> IntegerBuffersOf(const Replica& replica);
// Sets the replica's integer buffers. Returns a DataError if a buffer has another size than its
// value, or the replica does not have all buffers in `values`.
absl::Status SetIntegers(const std::map<std::string, std::string>& values, Replica* replica);

}  // namespace muster
