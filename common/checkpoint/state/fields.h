// A strict reader for objects in a checkpoint's JSON files. Each field that a call of Read names
// must be present and have the right type. A field that no call names is an error. Finish returns
// the first error, a DataError that names the field.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::checkpoint {

// Converts a number so that NumberFromJson returns the same value. JSON cannot express infinity and
// NaN, so these numbers become the strings "inf", "-inf" and "nan".
Json NumberToJson(double value);
// Returns false if `json` is neither a number nor one of these strings.
bool NumberFromJson(const Json& json, double* out);

class Fields {
 public:
  // `json` must outlive this reader.
  explicit Fields(const Json& json);

  Fields& Read(const std::string& key, bool* out);
  Fields& Read(const std::string& key, int64_t* out);  // A negative number is an error.
  Fields& Read(const std::string& key, double* out);
  Fields& Read(const std::string& key, std::vector<double>* out);
  Fields& Read(const std::string& key, std::string* out);
  Fields& Read(const std::string& key, std::map<std::string, std::string>* out);
  Fields& Read(const std::string& key, Json* out);
  absl::Status Finish();

 private:
  const Json* Find(const std::string& key);
  Fields& Wrong(const std::string& key, std::string_view type);

  const Json& json_;
  std::vector<std::string> known_;
  absl::Status status_;
};

}  // namespace muster::checkpoint
