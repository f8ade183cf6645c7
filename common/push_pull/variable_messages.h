// Converts VariableSpec to and from the messages of proto/parameter_server.proto.
#pragma once

#include <vector>

#include "common/push_pull/layout.h"
#include "proto/parameter_server.pb.h"

namespace muster::push_pull {

using VariableMessages = google::protobuf::RepeatedPtrField<proto::VariableMessage>;

VariableMessages ToMessages(const std::vector<VariableSpec>& variables);
std::vector<VariableSpec> SpecsOf(const VariableMessages& messages);

// All model buffers whose element type is not floating-point, such as counters. The key is
// "<model>.<buffer>", and the value is the bytes of the buffer. Each worker has its own values.
// Parameter servers do not hold these buffers.
using IntegerBuffers = std::map<std::string, std::string>;
// The maximum number of bytes of the buffers that a worker reports to the chief after a step. Large
// reports travel in several messages (Leases.Tell in proto/parameter_server.proto).
inline constexpr size_t kMaxIntegerBytes = 8 << 20;
// Returns the entries of `now` that are not in `before` or have another value there.
IntegerBuffers ChangedSince(const IntegerBuffers& before, const IntegerBuffers& now);

}  // namespace muster::push_pull
