// Reading configuration from JSON: syntax errors with line and column, and a reader of one object
// that knows its keys, so that a key nobody asked for is an error that suggests the nearest known
// one.
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

// Parses `text`, comments allowed. The error is a ConfigurationError "<origin>: line L, column C:
// ...". Duplicate keys in one object are refused.
absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view origin);
// The same for a file.
absl::StatusOr<Json> ReadJsonFile(const std::string& path);

// As text, on one line or indented. What is no UTF-8 becomes U+FFFD instead of an exception. Json,
// or the one that keeps its keys' order.
template <typename AnyJson>
std::string Dump(const AnyJson& json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, AnyJson::error_handler_t::replace);
}

// The candidate with the smallest edit distance (case ignored) if it is near enough to be a typing
// error, else "".
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

// Reads one object's keys into variables. Each Read* remembers its key as known; the first error
// sticks and the rest are no-ops. Finish() returns it, or an error for a key that no Read* asked
// for. null and absent keys leave `*out` as it is.
//   JsonObject object(json, "optimizer");
//   object.Read("name", &name).Read("momentum", &momentum);
//   MUSTER_RETURN_IF_ERROR(object.Finish());
class JsonObject {
 public:
  // `path` is the dotted place of the object for messages, "" for the top. The Json must outlive
  // this reader.
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
  JsonObject& Read(const std::string& key, Json* out);  // any value
  // Adds an error of the caller's own about `key` ("must be above 0, is -3").
  JsonObject& Fail(const std::string& key, std::string_view what);

  bool Has(const std::string& key) const;  // present and not null
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
