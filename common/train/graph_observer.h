// Who gives the graph of a run, and who gets it. Both are found by dynamic_cast, because most
// programs and observers are neither. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <vector>

#include "common/summary/graph_def.h"

namespace muster {

// An Observer (common/train/membership.h) that is one of these gets the graph of a run after the
// first step. The loop's thread makes the call.
class GraphObserver {
 public:
  virtual ~GraphObserver() = default;
  virtual void OnGraph(int64_t step, const std::vector<summary::GraphNode>& nodes) = 0;
};

// A Program that knows its graph better than autograd does, such as an exported one.
class GraphSource {
 public:
  virtual ~GraphSource() = default;
  virtual std::vector<summary::GraphNode> ForwardGraph() const = 0;
};

}  // namespace muster
