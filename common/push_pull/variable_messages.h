// VariableSpec as it travels in proto/parameter_server.proto.
#pragma once

#include <vector>

#include "common/push_pull/layout.h"
#include "proto/parameter_server.pb.h"

namespace muster {

using VariableMessages = google::protobuf::RepeatedPtrField<proto::VariableMessage>;

VariableMessages ToMessages(const std::vector<VariableSpec>& variables);
std::vector<VariableSpec> SpecsOf(const VariableMessages& messages);

// Bytes of buffers that are no floating point, by name ("<model>.<buffer>"): servers do not hold
// them, each worker has its own.
using IntegerBuffers = std::map<std::string, std::string>;
// A worker tells of so many bytes of them after a step, in pieces (Leases.Tell).
inline constexpr size_t kMostIntegerBytes = 8 << 20;
// Those of `now` that `before` has not, or with another value.
IntegerBuffers ChangedSince(const IntegerBuffers& before, const IntegerBuffers& now);

}  // namespace muster
