// Interfaces for the graph of operations that TensorBoard shows. A program that implements
// GraphSource provides a graph. An observer that implements GraphObserver receives a graph. The
// training loop finds both interfaces with dynamic_cast, because most programs and observers
// implement neither. This code does not need LibTorch.
#pragma once

#include <cstdint>
#include <vector>

#include "common/summary/graph_def.h"

namespace muster {

// Implemented by an Observer (common/train/observer.h) that wants the graph of a run. The loop's
// thread calls OnGraph once, after the first step of the run.
class GraphObserver {
 public:
  virtual ~GraphObserver() = default;
  virtual void OnGraph(int64_t step, const std::vector<summary::GraphNode>& nodes) = 0;
};

// Implemented by a Program that has a more detailed graph than the graph that autograd records. An
// example is a program that torch.export.save wrote.
class GraphSource {
 public:
  virtual ~GraphSource() = default;
  virtual std::vector<summary::GraphNode> ForwardGraph() const = 0;
};

}  // namespace muster
