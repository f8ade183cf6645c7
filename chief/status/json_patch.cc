#include "chief/status/json_patch.h"

#include <utility>

namespace muster::chief {

Json MergePatchOf(const Json& from, const Json& to) {
  Json patch = Json::object();
  for (const auto& [key, value] : from.items())
    if (!value.is_null() && (!to.contains(key) || to.at(key).is_null())) patch[key] = nullptr;
  for (const auto& [key, value] : to.items()) {
    if (value.is_null()) continue;
    const auto before = from.find(key);
    if (before == from.end() || before->type() != value.type() || !value.is_object()) {
      if (before == from.end() || *before != value) patch[key] = value;
      continue;
    }
    Json inner = MergePatchOf(*before, value);
    if (!inner.empty()) patch[key] = std::move(inner);
  }
  return patch;
}

}  // namespace muster::chief
