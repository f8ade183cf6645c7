#include "common/checkpoint/state/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace muster::checkpoint {

Json NumberToJson(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

bool NumberFromJson(const Json& json, double* out) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (json.is_number()) {
    *out = json.get<double>();
  } else if (json == "nan") {
    *out = std::numeric_limits<double>::quiet_NaN();
  } else if (json == "inf") {
    *out = kInfinity;
  } else if (json == "-inf") {
    *out = -kInfinity;
  } else {
    return false;
  }
  return true;
}

Fields::Fields(const Json& json) : json_(json) {
  if (!json.is_object()) status_ = DataError("it holds no JSON object");
}

const Json* Fields::Find(const std::string& key) {
  known_.push_back(key);
  if (!status_.ok()) return nullptr;
  const auto it = json_.find(key);
  if (it != json_.end()) return &*it;
  status_ = DataError(fmt::format("it has no field \"{}\"", key));
  return nullptr;
}

Fields& Fields::Wrong(const std::string& key, std::string_view type) {
  std::string value = Dump(json_.at(key));
  if (value.size() > 60) value = value.substr(0, 60) + "...";
  status_ = DataError(fmt::format("its field \"{}\" must be {}, is {}", key, type, value));
  return *this;
}

Fields& Fields::Read(const std::string& key, bool* out) {
  const Json* value = Find(key);
  if (value == nullptr) return *this;
  if (!value->is_boolean()) return Wrong(key, "true or false");
  *out = value->get<bool>();
  return *this;
}

Fields& Fields::Read(const std::string& key, int64_t* out) {
  const Json* value = Find(key);
  if (value == nullptr) return *this;
  // get<int64_t> returns a negative number if an unsigned one is out of range.
  if (!value->is_number_integer() || value->get<int64_t>() < 0) {
    return Wrong(key, "a whole number from 0 on");
  }
  *out = value->get<int64_t>();
  return *this;
}

Fields& Fields::Read(const std::string& key, double* out) {
  const Json* value = Find(key);
  if (value == nullptr) return *this;
  return NumberFromJson(*value, out) ? *this : Wrong(key, "a number");
}

Fields& Fields::Read(const std::string& key, std::vector<double>* out) {
  const Json* value = Find(key);
  if (value == nullptr) return *this;
  if (!value->is_array()) return Wrong(key, "a list of numbers");
  out->assign(value->size(), 0);
  for (size_t i = 0; i < value->size(); ++i) {
    if (!NumberFromJson((*value)[i], &(*out)[i])) return Wrong(key, "a list of numbers");
  }
  return *this;
}

Fields& Fields::Read(const std::string& key, std::string* out) {
  const Json* value = Find(key);
  if (value == nullptr) return *this;
  if (!value->is_string()) return Wrong(key, "a string");
  *out = value->get<std::string>();
  return *this;
}

Fields& Fields::Read(const std::string& key, std::map<std::string, std::string>* out) {
  const Json* value = Find(key);
  if (value == nullptr) return *this;
  if (!value->is_object()) return Wrong(key, "an object of strings");
  out->clear();
  for (const auto& [name, text] : value->items()) {
    if (!text.is_string()) return Wrong(key, "an object of strings");
    (*out)[name] = text.get<std::string>();
  }
  return *this;
}

Fields& Fields::Read(const std::string& key, Json* out) {
  if (const Json* value = Find(key)) *out = *value;
  return *this;
}

absl::Status Fields::Finish() {
  MUSTER_RETURN_IF_ERROR(status_);
  for (const auto& [key, value] : json_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      return DataError(
          fmt::format("it has a field {}, which does not belong there", Json(key).dump()));
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::checkpoint
