// Buffers that are no floating point (counters, tables of indices): parameter servers do not hold
// them, each worker has its own. What travels of them is their bytes, by name ("<model>.<buffer>").
#pragma once

#include <map>
#include <string>

#include "common/train/replica.h"

namespace muster {

std::map<std::string, std::string> IntegerBuffersOf(const Replica& replica);
// A DataError names one that is not there, or has another size.
absl::Status SetIntegers(const std::map<std::string, std::string>& values, Replica* replica);

}  // namespace muster
