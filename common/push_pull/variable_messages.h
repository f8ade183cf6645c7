// Converts VariableSpec to and from the messages of proto/parameter_server.proto.
#pragma once

#include <vector>

#include "common/push_pull/layout.h"
#include "proto/parameter_server.pb.h"

namespace muster::push_pull {

using VariableMessages = google::protobuf::RepeatedPtrField<proto::VariableMessage>;

VariableMessages ToMessages(const std::vector<VariableSpec>& variables);
std::vector<VariableSpec> SpecsOf(const VariableMessages& messages);

// Maps the name "<model>.<buffer>" of each buffer that is not floating-point to the bytes of the
// buffer. Servers do not hold these buffers, because each worker has its own.
using IntegerBuffers = std::map<std::string, std::string>;
// The maximum total bytes of buffers that a worker reports to the chief after a step. The report
// may be in pieces (Leases.Tell in proto/parameter_server.proto).
inline constexpr size_t kMaxIntegerBytes = 8 << 20;
// Returns the entries of `now` that `before` lacks or has with another value.
IntegerBuffers ChangedSince(const IntegerBuffers& before, const IntegerBuffers& now);

}  // namespace muster::push_pull
