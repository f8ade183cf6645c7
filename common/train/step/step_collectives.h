// Collective operations that a program calls in a step (Step::all_reduce, Step::all_gather).
// Autograd differentiates them. Used by the replica's thread, and in a backward pass by autograd's
// thread. Internal to common/train.
//
// All replicas must run the same operations in the same order, also in backward passes. All
// replicas have the same graph, because a replica without examples computes on an empty slice.
// LibTorch runs the nodes of one device in the reverse order of their creation. The order is
// therefore the same if the backward pass of every replica reaches every operation. If a replica's
// loss did not depend on an operation, its backward pass would not reach the operation. For this
// reason outputs() are additional roots of the pass, with gradient 0.
//
// A step that runs such an operation reduces its gradients after the backward pass. Otherwise the
// order of collectives would depend on the graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "common/collective/communicator.h"

namespace muster {

class StepCollectives : public std::enable_shared_from_this<StepCollectives> {
 public:
  explicit StepCollectives(collective::Communicator* communicator) : communicator_(communicator) {}

  // May be called between Begin and End. They throw StatusError.
  at::Tensor AllReduce(const at::Tensor& value, ReduceOp op);
  at::Tensor AllGather(const at::Tensor& value);
  // Sums `values` in place over all replicas. Not differentiable.
  void Sum(at::Tensor* values);

  void Begin();
  void End();
  bool used() const { return used_; }  // Returns true if an operation ran since Begin.
  int size() const { return communicator_->size(); }
  const std::vector<at::Tensor>& outputs() const { return outputs_; }
  // Discards the outputs. Called at the start of a micro-batch and after an update.
  void ForgetOutputs() { outputs_.clear(); }
  // Keeps the first `count` outputs. Called when the graph of the others is discarded.
  void KeepOutputs(size_t count) { outputs_.resize(count); }

 private:
  void Check(const at::Tensor& value, const char* call);
  at::Tensor Recorded(const at::Tensor& input, at::Tensor output,
                      std::function<at::Tensor(const at::Tensor&)> backward);

  collective::Communicator* const communicator_;
  bool open_ = false, used_ = false;
  std::vector<at::Tensor> outputs_;  // Outputs that require a gradient.
};

}  // namespace muster
