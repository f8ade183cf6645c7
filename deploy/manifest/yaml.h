// Writes JSON as YAML in block style.
#pragma once

#include <string>

#include "common/base/json/ordered_json.h"

namespace muster {

// Returns one YAML document, without a leading "---". Quotes strings that a YAML parser could read
// as another type. Writes a string with several lines as a literal block.
std::string ToYaml(const OrderedJson& json);

}  // namespace muster
