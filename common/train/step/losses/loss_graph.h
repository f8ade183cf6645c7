// The graph of a loss for TensorBoard: the operations that autograd recorded, from the parameters
// (and other tensors that require a gradient) to the loss. ForwardBegins and ForwardEnds record the
// times of forward passes for `muster trace`. Internal to common/train.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/summary/graph_def.h"

namespace muster {

// The name of an optimizer, and its objective: the scalar loss that the optimizer minimizes.
using NamedLoss = std::pair<std::string, at::Tensor>;

// Collects the graphs of the losses of one step. A LossGraph belongs to the thread that made it.
// During its lifetime, all steps of that thread add their losses to it. Parameters appear under the
// names that the constructor received. Values that require no gradient, such as the batch, do not
// appear, because autograd does not record them.
class LossGraph {
 public:
  explicit LossGraph(const std::vector<std::pair<std::string, at::Tensor>>& parameters);
  ~LossGraph();
  LossGraph(const LossGraph&) = delete;
  LossGraph& operator=(const LossGraph&) = delete;
  // Returns the newest LossGraph of the calling thread, or null.
  static LossGraph* Current();

  // Adds the graph of a loss. Must be called before the backward pass, which frees the graph.
  void Add(const NamedLoss& loss);
  // Removes all losses. Called when a step begins, and when a step is rolled back and repeated.
  void Clear();
  // Returns the nodes of all added losses, at most summary::kMaxGraphNodes.
  std::vector<summary::GraphNode> Take();

 private:
  class Walk;
  const std::vector<std::pair<std::string, at::Tensor>> parameters_;
  std::unique_ptr<Walk> walk_;
  LossGraph* const outer_;  // The previous LossGraph of the thread, or null.
};

// ForwardEnds adds a span "forward" to the trace, from the last call of ForwardBegins to this call.
// Each minimize() ends a forward pass. Another forward pass may follow in the same step. Both
// functions affect only the calling thread.
void ForwardBegins();
void ForwardEnds();

}  // namespace muster
