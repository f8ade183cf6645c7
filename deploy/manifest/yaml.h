// Writes JSON as YAML in block style.
#pragma once

#include <string>

#include "common/base/json/ordered_json.h"

namespace muster {

// Returns one document, without a leading "---". Quotes strings that a YAML parser could read as
// another type. Writes multi-line text as a literal block.
std::string ToYaml(const OrderedJson& json);

}  // namespace muster
