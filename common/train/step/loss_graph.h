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

// Collects the graphs of the losses of one step. While an object exists, the steps of the thread
// that made it add their losses. Parameters have the names that it got. Values that require no
// gradient, such as the batch, are not in a graph, because autograd does not record them.
class LossGraph {
 public:
  explicit LossGraph(const std::vector<std::pair<std::string, at::Tensor>>& parameters);
  ~LossGraph();
  LossGraph(const LossGraph&) = delete;
  LossGraph& operator=(const LossGraph&) = delete;
  // Returns the object of the calling thread, or null.
  static LossGraph* Current();

  // Must be called before the backward pass, which frees the graph.
  void Add(const NamedLoss& loss);
  // Forgets all losses. Called when a step begins, also for a second time.
  void Clear();
  // Returns at most summary::kMaxGraphNodes nodes.
  std::vector<summary::GraphNode> Take();

 private:
  class Walk;
  const std::vector<std::pair<std::string, at::Tensor>> parameters_;
  std::unique_ptr<Walk> walk_;
  LossGraph* const outer_;
};

// The span of the forward pass, which ends with the call of minimize. Another one may follow it in
// the same step. Both are of the calling thread.
void ForwardBegins();
void ForwardEnds();

}  // namespace muster
