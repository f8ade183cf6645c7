// Reads configuration from JSON. Syntax errors name line and column. JsonObject reads one object
// and refuses unknown keys with a suggestion of the nearest known key.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster {

using Json = nlohmann::json;

// Parses `text`. Comments are allowed. Errors are ConfigurationErrors of the form "<origin>: line
// L, column C: ...". Duplicate keys in one object are refused.
absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view origin);
// Same as ParseJson, for a file.
absl::StatusOr<Json> ReadJsonFile(const std::string& path);

// Serializes on one line, or indented by `indent` spaces if it is not negative. Replaces invalid
// UTF-8 by U+FFFD and does not throw. AnyJson is Json or the variant that keeps the order of keys.
template <typename AnyJson>
std::string Dump(const AnyJson& json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, AnyJson::error_handler_t::replace);
}

// Returns the candidate with the smallest edit distance to `word`, ignoring case. Returns "" if no
// candidate is close enough for `word` to be a typing error.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

// Reads one object's keys into variables. Each Read registers its key as known. After the first
// error, later calls do nothing. Finish() returns that error, or an error for a key that no Read
// named. If a key is absent or null, `*out` stays unchanged.
//   JsonObject object(json, "optimizer");
//   object.Read("name", &name).Read("momentum", &momentum);
//   MUSTER_RETURN_IF_ERROR(object.Finish());
class JsonObject {
 public:
  // `path` is the object's dotted path for messages, "" for the top level. `json` must outlive this
  // object.
  JsonObject(const Json& json, std::string path);

  JsonObject& Read(const std::string& key, bool* out);
  JsonObject& Read(const std::string& key, int* out);
  JsonObject& Read(const std::string& key, int64_t* out);
  JsonObject& Read(const std::string& key, uint64_t* out);
  JsonObject& Read(const std::string& key, double* out);
  JsonObject& Read(const std::string& key, std::string* out);
  JsonObject& Read(const std::string& key, std::vector<std::string>* out);
  JsonObject& Read(const std::string& key, std::vector<double>* out);
  JsonObject& Read(const std::string& key, std::vector<int64_t>* out);
  JsonObject& Read(const std::string& key, Json* out);  // Reads any value.
  // Reports the caller's own error about `key`, such as "must be above 0, is -3".
  JsonObject& Fail(const std::string& key, std::string_view what);

  bool Has(const std::string& key) const;  // Returns true if the key is present and not null.
  absl::Status Finish();

 private:
  std::string Place(const std::string& key) const;
  const Json* Find(const std::string& key);
  template <typename T, typename Check>
  JsonObject& ReadAs(const std::string& key, T* out, Check is_right, const char* type_name);

  const Json& json_;
  std::string path_;
  std::vector<std::string> known_;
  absl::Status status_;
};

}  // namespace muster
