// Conversion of VariableSpec to and from the messages of proto/parameter_server.proto.
#pragma once

#include <vector>

#include "common/push_pull/layout.h"
#include "proto/parameter_server.pb.h"

namespace muster {

using VariableMessages = google::protobuf::RepeatedPtrField<proto::VariableMessage>;

VariableMessages ToMessages(const std::vector<VariableSpec>& variables);
std::vector<VariableSpec> SpecsOf(const VariableMessages& messages);

// The bytes of buffers that are not floating-point, by name ("<model>.<buffer>"). Servers do not
// hold them, because each worker has its own.
using IntegerBuffers = std::map<std::string, std::string>;
// The maximum of these bytes that a worker reports after a step, in pieces (Leases.Tell).
inline constexpr size_t kMostIntegerBytes = 8 << 20;
// Returns the entries of `now` that are missing in `before` or have another value there.
IntegerBuffers ChangedSince(const IntegerBuffers& before, const IntegerBuffers& now);

}  // namespace muster
