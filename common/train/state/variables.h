// The variables of a program that parameter servers hold. There are three kinds of variables: a
// parameter with an optimizer, an embedding table, and a tensor of "the rest". The rest are the
// parameters without an optimizer and the floating-point buffers. The servers have one more
// optimizer, for the rest. A worker pushes (old value - new value), which this optimizer subtracts.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "common/push_pull/layout.h"
#include "common/train/replica/replica.h"

namespace muster {

struct ServedVariables {
  // Descriptions of all variables: the parameters sorted by optimizer, then the embedding tables,
  // each with an optimizer of its own, and then the rest.
  std::vector<push_pull::VariableSpec> specs;
  // The replica's own tensor of each variable. The tensor of a table is empty. The first dimension
  // of each tensor is the outermost in memory, without gaps, so that rows [a, b) are contiguous.
  // VariablesToServe gives this layout to a tensor that has another layout. VariableSpec::order
  // says how the dimensions of the tensor are then ordered in memory.
  std::vector<at::Tensor> tensors;
  // The optimizers of the servers, as JSON that ParseOptimizer reads. They are, in this order: one
  // for each group of each program optimizer (parameters without a group are group 0), one for each
  // table, and one for the rest. The optimizer for the rest is SGD. With a learning rate of 1, the
  // gradient (old - new) sets a buffer to its new value.
  std::vector<Json> optimizers;
  // The source of an element of `optimizers`: the index of the program's optimizer, the group, and
  // the group's factor for the learning rate.
  struct Owner {
    int optimizer = -1;  // -1 for a table and for the rest.
    int group = 0;
    double scale = 1;
  };
  std::vector<Owner> owners;  // Indexed like `optimizers`.
  // Returns the index in `optimizers` of the optimizer for the rest.
  int rest() const { return static_cast<int>(optimizers.size()) - 1; }
};
// Returns the variables of `replica`. Servers do not hold integer buffers. Returns a ProgramError
// if a variable is not float32, is declared kPerReplica, or is a parameter of two optimizers.
// Servers cannot hold such a variable. The error names the variable.
//
// A chunk is the unit of a push: a piece of a server's memory, with one or more variables.
// Parameters share a chunk only if a gradient of zeros does not change them (ZeroGradientIsNone).
// Buffers share a chunk only if the last components of their names are equal, such as
// "running_var".
absl::StatusOr<ServedVariables> VariablesToServe(Replica* replica);

// Returns one list for each shard. A shard is the part of the variables that one server holds. A
// list has the pieces of the tensors' memory that make up the shard, in the order of the server's
// memory. `tensors` has a CPU tensor for each variable, with the memory layout that `variables`
// describes.
std::vector<std::vector<std::span<float>>> ShardSpans(
    const push_pull::Layout& layout, const std::vector<push_pull::VariableSpec>& variables,
    const std::vector<at::Tensor>& tensors);

}  // namespace muster
