#include "muster/json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "absl/strings/ascii.h"
#include "common/base/json/ordered_json.h"

namespace muster {
namespace {

std::pair<size_t, size_t> LineAndColumn(std::string_view text, size_t byte) {
  byte = std::min(byte, text.size());
  const std::string_view before = text.substr(0, byte == 0 ? 0 : byte - 1);
  const size_t line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t start = before.rfind('\n');
  return {line, before.size() - (start == std::string_view::npos ? 0 : start + 1) + 1};
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

// The maximum nesting depth. Printing, copying and comparing a value use stack space for each
// level.
constexpr int kMaxLevels = 64;
// The maximum size of a text. The parsed value takes about fifty times as much memory.
constexpr size_t kMaxMebibytes = 64;

struct TooDeep {};

template <typename AnyJson>
absl::StatusOr<AnyJson> Parse(std::string_view text, std::string_view origin) {
  if (text.size() > kMaxMebibytes << 20)
    return ConfigurationError(fmt::format("{} has more than {} MiB", origin, kMaxMebibytes));
  std::vector<std::set<std::string>> keys;
  std::string duplicate;
  using Event = typename AnyJson::parse_event_t;
  const typename AnyJson::parser_callback_t on_event = [&](int depth, Event event,
                                                           AnyJson& parsed) {
    if ((event == Event::object_start || event == Event::array_start) && depth >= kMaxLevels)
      throw TooDeep();
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.template get<std::string>()).second) {
      duplicate = parsed.template get<std::string>();
    }
    return true;
  };
  try {
    AnyJson json =
        AnyJson::parse(text, on_event, /*allow_exceptions=*/true, /*ignore_comments=*/true);
    if (!duplicate.empty()) {
      return ConfigurationError(
          fmt::format("{}: key {} appears twice in one object: keep one of the two", origin,
                      Json(duplicate).dump()));
    }
    return json;
  } catch (const TooDeep&) {
    return ConfigurationError(
        fmt::format("{} is nested deeper than {} levels", origin, kMaxLevels));
  } catch (const Json::parse_error& error) {
    const auto [line, column] = LineAndColumn(text, error.byte);
    // The message is "[json.exception...] parse error at line 1, column 2: <why>". Only <why> is
    // kept.
    std::string why = error.what();
    if (const size_t at = why.find(": "); at != std::string::npos) why = why.substr(at + 2);
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) why = "it is empty";
    return ConfigurationError(
        fmt::format("{} is not valid JSON: line {}, column {}: {}", origin, line, column, why));
  } catch (const Json::exception& error) {
    return ConfigurationError(fmt::format("{} is not valid JSON: {}", origin, error.what()));
  }
}

template <typename AnyJson>
absl::StatusOr<AnyJson> ReadFile(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  // Reading an empty file sets failbit without an error.
  if (!in || (!(text << in.rdbuf()) && errno != 0)) {
    return ConfigurationError(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  }
  return Parse<AnyJson>(text.str(), path);
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view origin) {
  return Parse<Json>(text, origin);
}

absl::StatusOr<OrderedJson> ParseOrderedJson(std::string_view text, std::string_view origin) {
  return Parse<OrderedJson>(text, origin);
}

absl::StatusOr<Json> ReadJsonFile(const std::string& path) { return ReadFile<Json>(path); }

absl::StatusOr<OrderedJson> ReadOrderedJsonFile(const std::string& path) {
  return ReadFile<OrderedJson>(path);
}

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const std::string& candidate : candidates) {
    const size_t distance =
        EditDistance(absl::AsciiStrToLower(std::string(word)), absl::AsciiStrToLower(candidate));
    if (distance < best_distance) best_distance = distance, best = candidate;
  }
  const size_t limit = std::max<size_t>(2, word.size() / 2);
  return best_distance <= limit ? best : "";
}

std::string UnknownName(const std::string& name, const std::vector<std::string>& known) {
  const std::string nearest = Nearest(name, known);
  return nearest.empty()
             ? fmt::format("is {}, must be one of {}", Json(name).dump(), fmt::join(known, ", "))
             : fmt::format("is {}, did you mean \"{}\"?", Json(name).dump(), nearest);
}

JsonObject::JsonObject(const Json& json, std::string path) : json_(json), path_(std::move(path)) {
  if (!json_.is_object()) {
    status_ =
        ConfigurationError(fmt::format("{} must be a JSON object, is {}",
                                       path_.empty() ? "the top level" : path_, json_.type_name()));
  }
}

bool JsonObject::Has(const std::string& key) const {
  if (!json_.is_object()) return false;
  const auto it = json_.find(key);
  return it != json_.end() && !it->is_null();
}

std::string JsonObject::Place(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

const Json* JsonObject::Find(const std::string& key) {
  known_.push_back(key);
  return status_.ok() && Has(key) ? &json_.at(key) : nullptr;
}

JsonObject& JsonObject::Fail(const std::string& key, std::string_view what) {
  if (status_.ok()) {
    status_ = ConfigurationError(fmt::format("{} {}", Place(key), what));
  }
  return *this;
}

template <typename T, typename Check>
JsonObject& JsonObject::ReadAs(const std::string& key, T* out, Check is_right,
                               const char* type_name) {
  if (const Json* value = Find(key)) {
    if (!is_right(*value))
      return Fail(key, fmt::format("must be {}, is {}", type_name, value->dump()));
    *out = value->get<T>();
  }
  return *this;
}

namespace {
bool IsInteger(const Json& v) {
  // Some generators write 5.0 for 5. nlohmann stores numbers above int64's range as unsigned.
  if (v.is_number_unsigned())
    return v.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return v.is_number_integer() ||
         (v.is_number_float() && v.get<double>() == std::floor(v.get<double>()) &&
          std::abs(v.get<double>()) < 9e15);
}
bool IsInt(const Json& v) {
  return IsInteger(v) && v.get<int64_t>() >= std::numeric_limits<int>::min() &&
         v.get<int64_t>() <= std::numeric_limits<int>::max();
}
bool IsUnsigned(const Json& v) {
  return v.is_number_unsigned() || (IsInteger(v) && v.get<int64_t>() >= 0);
}
bool IsNumber(const Json& v) { return v.is_number(); }
template <typename Check>
auto ListOf(Check check) {
  return [check](const Json& v) { return v.is_array() && std::all_of(v.begin(), v.end(), check); };
}
bool IsString(const Json& v) { return v.is_string(); }
}  // namespace

JsonObject& JsonObject::Read(const std::string& key, bool* out) {
  return ReadAs(
      key, out, [](const Json& v) { return v.is_boolean(); }, "true or false");
}
JsonObject& JsonObject::Read(const std::string& key, int* out) {
  return ReadAs(key, out, IsInt, "an integer");
}
JsonObject& JsonObject::Read(const std::string& key, int64_t* out) {
  return ReadAs(key, out, IsInteger, "an integer");
}
JsonObject& JsonObject::Read(const std::string& key, uint64_t* out) {
  return ReadAs(key, out, IsUnsigned, "an integer not below 0");
}
JsonObject& JsonObject::Read(const std::string& key, double* out) {
  return ReadAs(key, out, IsNumber, "a number");
}
JsonObject& JsonObject::Read(const std::string& key, std::string* out) {
  return ReadAs(key, out, IsString, "a string");
}
JsonObject& JsonObject::Read(const std::string& key, std::vector<std::string>* out) {
  return ReadAs(key, out, ListOf(IsString), "a list of strings");
}
JsonObject& JsonObject::Read(const std::string& key, std::vector<double>* out) {
  return ReadAs(key, out, ListOf(IsNumber), "a list of numbers");
}
JsonObject& JsonObject::Read(const std::string& key, std::vector<int64_t>* out) {
  return ReadAs(key, out, ListOf(IsInteger), "a list of integers");
}
JsonObject& JsonObject::Read(const std::string& key, Json* out) {
  if (const Json* value = Find(key)) *out = *value;
  return *this;
}

absl::Status JsonObject::Finish() {
  MUSTER_RETURN_IF_ERROR(status_);
  for (const auto& [key, value] : json_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string nearest = Nearest(key, known_);
    return ConfigurationError(
        nearest.empty()
            ? fmt::format("unknown key \"{}\"; known keys: {}", Place(key), fmt::join(known_, ", "))
            : fmt::format("unknown key \"{}\", did you mean \"{}\"?", Place(key), nearest));
  }
  return absl::OkStatus();
}

}  // namespace muster
