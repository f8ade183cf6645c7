// VariableSpec as it travels in proto/parameter_server.proto.
#pragma once

#include <vector>

#include "common/push_pull/layout.h"
#include "proto/parameter_server.pb.h"

namespace muster {

using VariableMessages = google::protobuf::RepeatedPtrField<proto::VariableMessage>;

VariableMessages ToMessages(const std::vector<VariableSpec>& variables);
std::vector<VariableSpec> SpecsOf(const VariableMessages& messages);

}  // namespace muster
