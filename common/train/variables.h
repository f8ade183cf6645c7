// What parameter servers hold of a program: its parameters by optimizer and group, and the rest
// (parameters of no optimizer, floating-point buffers) as variables of one more, which just adds
// what is pushed.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "common/push_pull/layout.h"
#include "common/train/replica.h"

namespace muster {

struct ServedVariables {
  // Parameters by optimizer and in the optimizer's order, embedding tables (each with an optimizer
  // of its own), then the rest with optimizer == rest().
  std::vector<VariableSpec> specs;
  // The replica's own tensors, by variable: dense, the first dimension outermost (they are made so
  // where they are not), so that rows [a, b) are one piece of memory in the order specs tell. Of a
  // table: empty.
  std::vector<at::Tensor> tensors;
  // By optimizer, as ParseOptimizer reads them: each group of the program's optimizers is one here,
  // then come the tables'; the last one is the rest's: SGD. A learning rate of 1 and a gradient of
  // (old - new) set a buffer.
  std::vector<Json> optimizers;
  // By optimizer here: which of the program's it is, which group, and the group's part of the rate.
  struct Owner {
    int optimizer = -1;  // none of the program's: a table's, or the rest
    int group = 0;
    double scale = 1;
  };
  std::vector<Owner> owners;
  int rest() const { return static_cast<int>(optimizers.size()) - 1; }
};
// ProgramError naming a variable that servers cannot hold (not float32); integer buffers stay
// where they are.
//
// Parameters share a chunk only where a gradient of zeros is no update (ZeroGradientIsNone),
// buffers only with those of the same last name: a running variance with other running variances.
absl::StatusOr<ServedVariables> VariablesToServe(Replica* replica);

// By shard: the pieces of the tensors' memory (one tensor for each variable, laid out alike) that
// cover the shard's memory, in its order. REQUIRES: CPU tensors.
std::vector<std::vector<std::span<float>>> ShardSpans(const Layout& layout,
                                                      const std::vector<VariableSpec>& variables,
                                                      const std::vector<at::Tensor>& tensors);

}  // namespace muster
