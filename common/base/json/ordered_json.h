// JSON whose objects keep the order of their keys, for the parts of a job file where order matters.
// Also a message about unknown names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/json.h"

namespace muster {

using OrderedJson = nlohmann::ordered_json;

// Same as ParseJson and ReadJsonFile.
absl::StatusOr<OrderedJson> ParseOrderedJson(std::string_view text, std::string_view origin);
absl::StatusOr<OrderedJson> ReadOrderedJsonFile(const std::string& path);

// Returns "is \"sdg\", did you mean \"sgd\"?", or lists all known names.
std::string UnknownName(const std::string& name, const std::vector<std::string>& known);

}  // namespace muster
