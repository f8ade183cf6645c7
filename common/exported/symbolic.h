// Functions for nodes of an exported graph that compute with sizes (_operator.mul, math.trunc,
// torch.sym_max, ...). The arithmetic is Python's. Thread-safe.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace muster::exported {

// Takes ints, doubles and bools, and returns an int, a double or a bool. Throws c10::Error for a
// division by zero or an overflow.
using SymbolicFunction = c10::IValue (*)(const std::vector<c10::IValue>& operands);

struct Symbolic {
  SymbolicFunction function = nullptr;  // Null if no function has the name.
  size_t operands = 0;
};
// Finds the function for a node's target, such as "_operator.floordiv".
Symbolic FindSymbolic(const std::string& target);

}  // namespace muster::exported
