// Buffers that are not floating-point, such as counters and index tables. Parameter servers do not
// hold these buffers. Each worker has its own. These functions convert the buffers of a replica
// (one device's copy of the model) to bytes and back. The keys are names "<model>.<buffer>".
#pragma once

#include <map>
#include <string>

#include "common/train/replica/replica.h"

namespace muster {

std::map<std::string, std::string> IntegerBuffersOf(const Replica& replica);
// Sets integer buffers of the replica. Returns a DataError if a value and its buffer have different
// sizes, or if the replica lacks a buffer that `values` names.
absl::Status SetIntegers(const std::map<std::string, std::string>& values, Replica* replica);

}  // namespace muster
