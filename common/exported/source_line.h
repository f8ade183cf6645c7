// Where in the user's Python a node of an exported graph comes from. Pure.
#pragma once

#include <string>

#include "muster/json.h"

namespace muster::exported {

// Of a node's "metadata": "model.py, line 12, in forward: x = self.conv(x)", the innermost place
// that is not in PyTorch itself; "" where the file does not say.
std::string SourceLine(const Json& metadata);

}  // namespace muster::exported
