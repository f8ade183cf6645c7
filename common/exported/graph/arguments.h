// Parses the arguments of a graph's nodes from JSON. In torch/_export/serde/schema.py, an argument
// has the type Argument, a union of about thirty kinds. The JSON of a union is an object with one
// member, such as {"as_int": 3}.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "muster/json.h"

namespace muster::exported {

// Thrown if Muster cannot run a node. what() is the reason, and `fix` tells the user what to do.
// The message to the user is "<node>: <what()>: <fix>".
struct Unsupported : std::runtime_error {
  Unsupported(const std::string& why, std::string fix)
      : std::runtime_error(why), fix(std::move(fix)) {}
  std::string fix;
};

// The member of a union's JSON object. The references point into the JSON object.
struct Member {
  const std::string& tag;
  const Json& value;
};
// Returns the member of the union `json`. Throws c10::Error "<what> is no union" if `json` is not
// an object with one member.
Member MemberOf(const Json& json, const char* what);

struct ParsedItem {
  std::string name;  // The name of a value in the graph. "": `constant` is the item.
  // Dtypes, layouts and memory formats are LibTorch's enum values as int64_t.
  c10::IValue constant;
};
struct ParsedArgument {
  bool list = false;
  std::vector<ParsedItem> items;  // Has one item if `list` is false.
  // The nested graph, if the argument is a graph (see Node::graphs in graph.h). Otherwise null.
  // Points into the JSON of the argument.
  const Json* graph = nullptr;
};

// Parses an argument. Replaces each device by `device`, except the device "meta". Throws
// Unsupported, Json::exception or c10::Error.
ParsedArgument ParseArgument(const Json& argument, c10::Device device);

}  // namespace muster::exported
