// JSON whose objects keep their keys' order, for the little in a job file where the order means
// something; and what messages about names share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/json.h"

namespace muster {

using OrderedJson = nlohmann::ordered_json;

// As ParseJson and ReadJsonFile.
absl::StatusOr<OrderedJson> ParseOrderedJson(std::string_view text, std::string_view origin);
absl::StatusOr<OrderedJson> ReadOrderedJsonFile(const std::string& path);

// "is \"sdg\", did you mean \"sgd\"?", or with all the known names.
std::string UnknownName(const std::string& name, const std::vector<std::string>& known);

}  // namespace muster
