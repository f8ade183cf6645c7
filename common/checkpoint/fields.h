// A strict reader of one object of a checkpoint's JSON files. Every field must be present and have
// its type, and unknown fields are errors. The first error sticks: a DataError that names the
// field.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::checkpoint {

// Writes infinities and NaN, which JSON lacks, as the strings "inf", "-inf" and "nan". All other
// values are read back with the same bits.
Json NumberToJson(double value);
// Returns false for anything but a number or one of those strings.
bool NumberFromJson(const Json& json, double* out);

class Fields {
 public:
  // `json` must outlive this reader.
  explicit Fields(const Json& json);

  Fields& Read(const std::string& key, bool* out);
  Fields& Read(const std::string& key, int64_t* out);  // Requires at least 0.
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
