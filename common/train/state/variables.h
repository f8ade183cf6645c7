// The variables of a program that parameter servers hold: its parameters by optimizer and group,
// and the rest (parameters of no optimizer, floating-point buffers). The rest has one more
// optimizer, which only adds what is pushed.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "common/push_pull/layout.h"
#include "common/train/replica/replica.h"

namespace muster {

struct ServedVariables {
  // Parameters by optimizer and in the optimizer's order, then embedding tables (each with an
  // optimizer of its own), then the rest with optimizer == rest().
  std::vector<VariableSpec> specs;
  // The replica's own tensors, by variable. Each is dense with the first dimension outermost; other
  // tensors are converted. So rows [a, b) are contiguous, in the order that the specs give. Empty
  // for a table.
  std::vector<at::Tensor> tensors;
  // Indexed by served optimizer, in the form that ParseOptimizer reads. There is one for each group
  // of the program's optimizers, then the tables', then the rest's. The rest's is SGD: a learning
  // rate of 1 and a gradient of (old - new) set a buffer.
  std::vector<Json> optimizers;
  // Indexed by served optimizer: the program's optimizer, the group, and the group's factor of the
  // rate.
  struct Owner {
    int optimizer = -1;  // -1: a table's, or the rest.
    int group = 0;
    double scale = 1;
  };
  std::vector<Owner> owners;
  int rest() const { return static_cast<int>(optimizers.size()) - 1; }
};
// Returns a ProgramError that names a variable that servers cannot hold, because it is not float32
// or is declared kPerReplica. Integer buffers are not served.
//
// Parameters share a chunk only if a gradient of zeros causes no update (ZeroGradientIsNone).
// Buffers share a chunk only with buffers of the same last name, such as running variances.
absl::StatusOr<ServedVariables> VariablesToServe(Replica* replica);

// Returns, by shard, the pieces of the tensors' memory that make up the shard's memory, in its
// order. `tensors` has one tensor for each variable, with the same layout. Requires CPU tensors.
std::vector<std::vector<std::span<float>>> ShardSpans(const Layout& layout,
                                                      const std::vector<VariableSpec>& variables,
                                                      const std::vector<at::Tensor>& tensors);

}  // namespace muster
