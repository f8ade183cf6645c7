// Finds the line of the user's Python for a node of an exported graph.
#pragma once

#include <string>

#include "muster/json.h"

namespace muster::exported {

// Returns a frame of the stack trace in `metadata`, the node's "metadata". An example is "model.py,
// line 12, in forward: x = self.conv(x)". The frame is the innermost frame outside PyTorch. If all
// frames are in PyTorch, returns the innermost frame. Returns "" if there is no stack trace. Pure
// function.
std::string SourceLine(const Json& metadata);

}  // namespace muster::exported
