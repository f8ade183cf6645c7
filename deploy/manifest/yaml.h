// JSON as YAML in block style, as people read it and kubectl takes it.
#pragma once

#include <string>

#include "common/base/json/ordered_json.h"

namespace muster {

// One document, without the "---" before it. Strings that another reader of YAML could take for
// something else are quoted. Text of several lines is a literal block.
std::string ToYaml(const OrderedJson& json);

}  // namespace muster
