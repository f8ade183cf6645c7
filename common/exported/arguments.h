// The arguments of nodes as the file has them: torch's schema.Argument, a union of about thirty
// kinds.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "muster/json.h"

namespace muster::exported {

// Why a node cannot run here, and what to do: a clause each.
struct Unsupported : std::runtime_error {
  Unsupported(const std::string& why, std::string mend)
      : std::runtime_error(why), mend(std::move(mend)) {}
  std::string mend;
};

// The only member of a union of the schema, as {"as_int": 3} has it. Refers to the JSON.
struct Member {
  const std::string& tag;
  const Json& value;
};
// Throws c10::Error "<what> is no union".
Member MemberOf(const Json& json, const char* what);

struct ParsedItem {
  std::string name;      // of a value; "": the constant
  c10::IValue constant;  // numbers are int, double, bool or complex; types and layouts are int
};
struct ParsedArgument {
  bool list = false;
  std::vector<ParsedItem> items;  // one where it is no list
  const Json* graph = nullptr;    // of a higher-order operator
};

// Devices become `device`. Throws Unsupported, Json::exception or c10::Error.
ParsedArgument ParseArgument(const Json& argument, c10::Device device);

// A float of the schema: a number, or "Infinity", "-Infinity", "NaN".
double ParseFloat(const Json& json);

}  // namespace muster::exported
