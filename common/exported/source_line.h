// Finds the line of the user's Python that a node of an exported graph comes from. Pure.
#pragma once

#include <string>

#include "muster/json.h"

namespace muster::exported {

// Reads a node's "metadata" and returns the innermost place outside PyTorch, such as "model.py,
// line 12, in forward: x = self.conv(x)". Returns "" where the file does not tell.
std::string SourceLine(const Json& metadata);

}  // namespace muster::exported
