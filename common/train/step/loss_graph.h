// The graph of a loss for TensorBoard: the operations that autograd recorded from the inputs and
// parameters to the loss. Internal to common/train.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/summary/graph_def.h"

namespace muster {

// The objective of an optimizer, and the optimizer's name.
using NamedLoss = std::pair<std::string, at::Tensor>;

// Collects the graphs of the losses of one step. Parameters have the names that Make got. Values
// that require no gradient, such as the batch, are not in a graph, because autograd does not record
// them.
class LossGraph {
 public:
  static std::unique_ptr<LossGraph> Make(
      const std::vector<std::pair<std::string, at::Tensor>>& parameters);
  virtual ~LossGraph() = default;
  // Must be called before the backward pass, which frees the graph.
  virtual void Add(const NamedLoss& loss) = 0;
  // Returns at most summary::kMaxGraphNodes nodes.
  virtual std::vector<summary::GraphNode> Take() = 0;
};

}  // namespace muster
