// Finds the line of the user's Python for a node of an exported graph.
#pragma once

#include <string>

#include "muster/json.h"

namespace muster::exported {

// Returns the innermost stack frame outside PyTorch from a node's "metadata", such as "model.py,
// line 12, in forward: x = self.conv(x)". Returns "" if the file has no such frame. Pure.
std::string SourceLine(const Json& metadata);

}  // namespace muster::exported
