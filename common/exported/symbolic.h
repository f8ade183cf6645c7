// Arithmetic on sizes: the nodes of an exported graph that compute with Python's numbers
// (_operator.mul, math.trunc, torch.sym_max, ...), by Python's rules. Thread-safe.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace muster::exported {

// Takes ints, doubles and bools, and returns one of them. Throws c10::Error (division by zero, an
// overflow).
using SymbolicFunction = c10::IValue (*)(const std::vector<c10::IValue>& operands);

struct Symbolic {
  SymbolicFunction function = nullptr;  // Null where no function has that name.
  size_t operands = 0;
};
// `target` is the node's target, such as "_operator.floordiv".
Symbolic FindSymbolic(const std::string& target);

}  // namespace muster::exported
