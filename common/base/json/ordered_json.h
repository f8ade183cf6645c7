// JSON objects that keep the order of their keys, for the parts of a job file where order matters.
// UnknownName makes messages about unknown names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/json.h"

namespace muster {

using OrderedJson = nlohmann::ordered_json;

// As ParseJson and ReadJsonFile (muster/json.h), but with ordered objects.
absl::StatusOr<OrderedJson> ParseOrderedJson(std::string_view text, std::string_view origin);
absl::StatusOr<OrderedJson> ReadOrderedJsonFile(const std::string& path);

// Returns the end of a message about an unknown name: `is "sdg", did you mean "sgd"?`. If no known
// name is similar, the result lists all known names.
std::string UnknownName(const std::string& name, const std::vector<std::string>& known);

}  // namespace muster
