// The variables of a program that parameter servers hold. They are its parameters, by optimizer and
// group, and the rest: parameters without an optimizer and floating-point buffers. The servers have
// one more optimizer for the rest, which subtracts the pushed differences.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "common/push_pull/layout.h"
#include "common/train/replica/replica.h"

namespace muster {

struct ServedVariables {
  // Parameters by optimizer, in the optimizer's order. Embedding tables follow, each with an
  // optimizer of its own. The rest is last, with optimizer == rest().
  std::vector<VariableSpec> specs;
  // The replica's own tensor for each variable. Each is dense with the first dimension outermost,
  // so that rows [a, b) are contiguous. VariablesToServe converts other tensors. `specs` has the
  // order of the dimensions in memory. The tensor of a table is empty.
  std::vector<at::Tensor> tensors;
  // The served optimizers, as for ParseOptimizer: one for each group of the program's optimizers,
  // one for each table, and one for the rest. The last is SGD: with a learning rate of 1, the
  // gradient (old - new) sets a buffer to its new value.
  std::vector<Json> optimizers;
  // Indexed by served optimizer: the program's optimizer, its group, and the group's factor for the
  // learning rate.
  struct Owner {
    int optimizer = -1;  // -1 for a table and for the rest.
    int group = 0;
    double scale = 1;
  };
  std::vector<Owner> owners;
  int rest() const { return static_cast<int>(optimizers.size()) - 1; }
};
// Returns the variables of `replica`. Integer buffers are not served. Returns a ProgramError that
// names a variable that servers cannot hold: it is not float32, is declared kPerReplica, or is a
// parameter of two optimizers.
//
// Parameters share a chunk only if a gradient of zeros changes nothing (ZeroGradientIsNone).
// Buffers share a chunk only with buffers of the same last name, such as "running_var".
absl::StatusOr<ServedVariables> VariablesToServe(Replica* replica);

// Returns for each shard the pieces of the tensors' memory that the shard consists of, in the order
// of the shard's memory. `tensors` has a CPU tensor for each variable, with the layout that
// `variables` describes.
std::vector<std::vector<std::span<float>>> ShardSpans(const Layout& layout,
                                                      const std::vector<VariableSpec>& variables,
                                                      const std::vector<at::Tensor>& tensors);

}  // namespace muster
