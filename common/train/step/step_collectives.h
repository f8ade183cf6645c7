// Collective operations that a program calls in a step, differentiable by autograd. Used by the
// replica's thread, and in a backward pass by autograd's thread for it. Internal to this folder.
//
// All replicas must issue the same operations in the same order, in backward passes too. LibTorch
// runs the nodes of one device in the reverse order of their creation. All replicas have the same
// graph, because a replica without examples computes on an empty slice. So the order is the same if
// every replica's pass reaches every operation. For this reason outputs() are roots of the pass
// with gradient 0: a replica's loss may not depend on one of them.
//
// If gradients were launched during the backward pass, their order would depend on the graph. So a
// step that used an operation launches them after the pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "common/collective/communicator.h"

namespace muster {

class StepCollectives : public std::enable_shared_from_this<StepCollectives> {
 public:
  explicit StepCollectives(Communicator* communicator) : communicator_(communicator) {}

  // Valid between Begin and End of a step. Throw StatusError.
  at::Tensor AllReduce(const at::Tensor& value, ReduceOp op);
  at::Tensor AllGather(const at::Tensor& value);
  // Sums in place, without a graph.
  void Sum(at::Tensor* values);

  void Begin();
  void End();
  bool used() const { return used_; }  // Returns whether an operation ran since Begin.
  int size() const { return communicator_->size(); }
  const std::vector<at::Tensor>& outputs() const { return outputs_; }
  // Discards the outputs at the end of a micro-batch or after an update.
  void ForgetOutputs() { outputs_.clear(); }
  // Keeps only the first `count`; the others belong to a discarded graph.
  void KeepOutputs(size_t count) { outputs_.resize(count); }

 private:
  void Check(const at::Tensor& value, const char* call);
  at::Tensor Recorded(const at::Tensor& input, at::Tensor output,
                      std::function<at::Tensor(const at::Tensor&)> backward);

  Communicator* const communicator_;
  bool open_ = false, used_ = false;
  std::vector<at::Tensor> outputs_;  // Outputs that require a gradient.
};

}  // namespace muster
