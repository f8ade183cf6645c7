// Parses the arguments of a graph's nodes. An argument is a schema.Argument of torch, which is a
// union of about thirty kinds.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "muster/json.h"

namespace muster::exported {

// Thrown if Muster cannot run a node. what() is the reason, and `fix` is what the user can do.
// Both are clauses.
struct Unsupported : std::runtime_error {
  Unsupported(const std::string& why, std::string fix)
      : std::runtime_error(why), fix(std::move(fix)) {}
  std::string fix;
};

// The only member of a JSON object for a union, such as {"as_int": 3}. Refers to that JSON object.
struct Member {
  const std::string& tag;
  const Json& value;
};
// Returns the member of a union. Throws c10::Error "<what> is no union" if `json` is not a union.
Member MemberOf(const Json& json, const char* what);

struct ParsedItem {
  std::string name;      // The name of a value. "" means a constant.
  c10::IValue constant;  // A number is an int, double, bool or complex. A type or layout is an int.
};
struct ParsedArgument {
  bool list = false;
  std::vector<ParsedItem> items;  // Has one item if `list` is false.
  const Json* graph = nullptr;    // The graph argument of a higher-order operator, or null.
};

// Parses an argument, and replaces every device by `device`. Throws Unsupported, Json::exception or
// c10::Error.
ParsedArgument ParseArgument(const Json& argument, c10::Device device);

// Parses a float of the schema: a number, or "Infinity", "-Infinity", "NaN".
double ParseFloat(const Json& json);

}  // namespace muster::exported
