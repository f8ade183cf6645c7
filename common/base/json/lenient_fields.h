// Reads fields of JSON files that may be damaged or written by another version. A field that is
// missing or has another type counts as absent.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "muster/json.h"

namespace muster {

// Returns the value at a path of keys, or a null value if the path does not exist.
inline const Json& FieldAt(const Json& json, std::initializer_list<const char*> path) {
  static const Json null;
  const Json* at = &json;
  for (const char* key : path) {
    if (!at->is_object()) return null;
    const auto found = at->find(key);
    if (found == at->end()) return null;
    at = &*found;
  }
  return *at;
}

inline std::optional<double> NumberAt(const Json& json, std::initializer_list<const char*> path) {
  const Json& field = FieldAt(json, path);
  return field.is_number() ? std::optional(field.get<double>()) : std::nullopt;
}

// Returns the integer part of the number at `path`. Returns nullopt if there is no number, or if
// its magnitude is 9e15 or more.
inline std::optional<int64_t> IntegerAt(const Json& json, std::initializer_list<const char*> path) {
  const std::optional<double> number = NumberAt(json, path);
  if (!number || !(std::fabs(*number) < 9e15)) return std::nullopt;
  return static_cast<int64_t>(*number);
}

inline std::string TextAt(const Json& json, std::initializer_list<const char*> path) {
  const Json& field = FieldAt(json, path);
  return field.is_string() ? field.get<std::string>() : "";
}

}  // namespace muster
