// The variables of a program that parameter servers hold. There are two kinds: parameters with an
// optimizer, sorted by optimizer, and "the rest", which are parameters without an optimizer and
// floating-point buffers. For the rest, the servers have an additional optimizer, which subtracts
// the pushed differences.
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
  std::vector<push_pull::VariableSpec> specs;
  // The replica's own tensor for each variable. Each is dense with the first dimension outermost,
  // so that rows [a, b) are contiguous. VariablesToServe changes the memory layout of all other
  // tensors to this one. VariableSpec::order has the order that the dimensions then have in memory.
  // The tensor of a table is empty.
  std::vector<at::Tensor> tensors;
  // The served optimizers, as JSON that ParseOptimizer reads: one for each group of the program's
  // optimizers, then one for each table, then one for the rest. The last one is SGD: with a
  // learning rate of 1, the gradient (old - new) sets a buffer to its new value.
  std::vector<Json> optimizers;
  // The origin of a served optimizer: the program's optimizer, the group, and the group's factor
  // for the learning rate. `owners` is indexed like `optimizers`.
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
// A chunk is the unit of a push. Parameters share a chunk only if their optimizer does nothing for
// a gradient of zeros (ZeroGradientIsNone). Buffers share a chunk only if the last component of
// their names is equal, such as "running_var".
absl::StatusOr<ServedVariables> VariablesToServe(Replica* replica);

// Returns one list for each shard: the pieces of tensor memory that make up the shard, in the order
// of the shard's memory. `tensors` has a CPU tensor for each variable, with the layout that
// `variables` describes.
std::vector<std::vector<std::span<float>>> ShardSpans(
    const push_pull::Layout& layout, const std::vector<push_pull::VariableSpec>& variables,
    const std::vector<at::Tensor>& tensors);

}  // namespace muster
