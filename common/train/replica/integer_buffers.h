// Buffers that are not floating point, such as counters and index tables. Parameter servers do not
// hold them; each worker has its own. They are transferred as bytes, by name ("<model>.<buffer>").
#pragma once

#include <map>
#include <string>

#include "common/train/replica/replica.h"

namespace muster {

std::map<std::string, std::string> IntegerBuffersOf(const Replica& replica);
// Returns a DataError that names the first buffer that does not exist or has another size.
absl::Status SetIntegers(const std::map<std::string, std::string>& values, Replica* replica);

}  // namespace muster
