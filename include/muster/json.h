// Reads configuration from JSON. JsonObject reads one JSON object. If the object has an unknown
// key, the error suggests the known key with the most similar name.
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

// Parses `text`. Comments are allowed. Duplicate keys in one object are an error. Errors are
// ConfigurationErrors (muster/status.h) of the form "<origin>: line L, column C: ...".
absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view origin);
// Reads a file, and parses the content in the same way as ParseJson. The origin is `path`.
absl::StatusOr<Json> ReadJsonFile(const std::string& path);

// Serializes `json`. If `indent` is negative, the result is one line. Otherwise each level is
// indented by `indent` spaces. Replaces invalid UTF-8 by U+FFFD and does not throw. AnyJson is Json
// or nlohmann::ordered_json.
template <typename AnyJson>
std::string Dump(const AnyJson& json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, AnyJson::error_handler_t::replace);
}

// Returns the candidate with the smallest edit distance to `word`. Ignores case. Returns "" if no
// candidate is similar to `word`.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

// Reads the keys of one JSON object into variables. Each Read registers a key as known. If a key
// is absent or null, `*out` stays unchanged. After an error, later calls do nothing. Finish()
// returns the first error. If there was no error, but the object has an unknown key, Finish()
// returns an error that names this key.
//   JsonObject object(json, "optimizer");
//   object.Read("name", &name).Read("momentum", &momentum);
//   MUSTER_RETURN_IF_ERROR(object.Finish());
class JsonObject {
 public:
  // `path` is the object's place in the configuration for messages, such as "optimizer.clip", or ""
  // for the top level. `json` must outlive this object.
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
  // Records the caller's own error about `key`, such as "must be above 0, is -3". Finish() returns
  // this error.
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
