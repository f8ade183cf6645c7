// Functions for the nodes of an exported graph that compute with sizes, such as _operator.mul,
// math.trunc or torch.sym_max. The results are the same as in Python. Thread-safe.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace muster::exported {

// Operands and result are ints, doubles or bools. Throws c10::Error if an operand is invalid or an
// integer overflows.
using SymbolicFunction = c10::IValue (*)(const std::vector<c10::IValue>& operands);

struct Symbolic {
  SymbolicFunction function = nullptr;  // Null if the target is unknown.
  size_t operands = 0;                  // The number of operands.
};
// Finds the function for `target`, a node's target such as "_operator.floordiv".
Symbolic FindSymbolic(const std::string& target);

}  // namespace muster::exported
