// Reads integers from untrusted JSON with range checks. The conversions of nlohmann::json have no
// such checks: an integer that is too large for the type wraps around. The conversion of a
// floating-point number that is too large is undefined behaviour.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <utility>

#include "muster/json.h"

namespace muster {

// Converts to any integral type except bool. The conversion throws Json::exception if the value is
// not an integer or is outside the type's range. A number such as 5.0 counts as an integer. The
// JSON must outlive this object. Example:
//   const int64_t step = JsonInteger(json.at("step"));
class JsonInteger {
 public:
  explicit JsonInteger(const Json& json) : json_(json) {}

  template <std::integral T>
  requires(!std::same_as<T, bool>) operator T() const {
    if (json_.is_number_unsigned()) return Fitting<T>(*json_.get_ptr<const uint64_t*>());
    if (json_.is_number_integer()) return Fitting<T>(*json_.get_ptr<const int64_t*>());
    // Just below 2^53. A double cannot represent every integer above 2^53.
    constexpr double kMax = 9e15;
    const double* const number = json_.get_ptr<const double*>();
    if (number == nullptr || *number != std::floor(*number) || std::abs(*number) > kMax) Fail();
    return Fitting<T>(static_cast<int64_t>(*number));
  }

 private:
  template <typename T, typename Number>
  T Fitting(Number number) const {
    if (!std::in_range<T>(number)) Fail();
    return static_cast<T>(number);
  }
  [[noreturn]] void Fail() const {
    throw Json::out_of_range::create(406, "a number is no integer of its type", &json_);
  }

  const Json& json_;
};

// Returns the integer of `key`, or `otherwise` if the key is missing. Throws as JsonInteger does.
// REQUIRES: `object` is an object.
template <std::integral T>
T JsonIntegerOr(const Json& object, const char* key, T otherwise) {
  const auto found = object.find(key);
  return found == object.end() ? otherwise : static_cast<T>(JsonInteger(*found));
}

// Returns whether every number in `json` is an integer that fits in an int64. Here, a number such
// as 5.0 does not count as an integer.
inline bool HoldsInt64(const Json& json) {
  if (json.is_structured()) return std::all_of(json.begin(), json.end(), HoldsInt64);
  if (json.is_number_unsigned()) return std::in_range<int64_t>(*json.get_ptr<const uint64_t*>());
  return !json.is_number_float();
}

}  // namespace muster
