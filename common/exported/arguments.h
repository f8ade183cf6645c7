// The arguments of nodes in the file: torch's schema.Argument, a union of about thirty kinds.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "muster/json.h"

namespace muster::exported {

// Why a node cannot run here (what()), and what the user can do (`mend`). Both are clauses.
struct Unsupported : std::runtime_error {
  Unsupported(const std::string& why, std::string mend)
      : std::runtime_error(why), mend(std::move(mend)) {}
  std::string mend;
};

// The only member of a union of the schema, such as {"as_int": 3}. Refers to the JSON.
struct Member {
  const std::string& tag;
  const Json& value;
};
// Throws c10::Error "<what> is no union".
Member MemberOf(const Json& json, const char* what);

struct ParsedItem {
  std::string name;      // Of a value. "": a constant.
  c10::IValue constant;  // Numbers are int, double, bool or complex. Types and layouts are int.
};
struct ParsedArgument {
  bool list = false;
  std::vector<ParsedItem> items;  // One item where it is no list.
  const Json* graph = nullptr;    // Of a higher-order operator.
};

// Replaces devices by `device`. Throws Unsupported, Json::exception or c10::Error.
ParsedArgument ParseArgument(const Json& argument, c10::Device device);

// Parses a float of the schema: a number, or "Infinity", "-Infinity", "NaN".
double ParseFloat(const Json& json);

}  // namespace muster::exported
