// Collective operations that a program calls in a step: Step::all_reduce and Step::all_gather.
// Autograd differentiates them. A replica is one device's copy of the model, with its own thread.
// Used by that thread, and during a backward pass by autograd's thread. Internal to common/train.
//
// All replicas must run the same operations in the same order, also in backward passes. The order
// in backward passes is the same for three reasons. First, all replicas have the same graph,
// because a replica without examples computes on an empty slice. Second, LibTorch runs the nodes of
// one device in the reverse order of their creation. Third, the backward pass of every replica
// reaches every operation, because the outputs of all operations are additional roots of the pass,
// with gradient 0. Without these roots, the pass would not reach an operation on which the
// replica's loss does not depend.
//
// A step with such operations reduces its gradients after the backward pass. If a step reduced
// gradients during the pass, the order of the collectives would depend on the graph.
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

  // AllReduce and AllGather implement Step::all_reduce and Step::all_gather. They throw
  // StatusError, for example if they are not called between Begin and End.
  at::Tensor AllReduce(const at::Tensor& value, ReduceOp op);
  at::Tensor AllGather(const at::Tensor& value);
  // Sums `values` over all replicas, in place. Not differentiable. Throws StatusError.
  void Sum(at::Tensor* values);

  // Begin and end a step.
  void Begin();
  void End();
  // Returns true if AllReduce or AllGather was called since Begin.
  bool used() const { return used_; }
  int size() const { return communicator_->size(); }
  // Returns the outputs that require a gradient. They are additional roots of the backward pass.
  const std::vector<at::Tensor>& outputs() const { return outputs_; }
  // Removes all outputs. Called at the start of a micro-batch and after an update.
  void ForgetOutputs() { outputs_.clear(); }
  // Keeps only the first `count` outputs. Called when the graph of the later outputs is discarded.
  void KeepOutputs(size_t count) { outputs_.resize(count); }

 private:
  // Throws if no step runs or `value` is undefined. `call` names the program's call.
  void Check(const at::Tensor& value, const char* call);
  // Returns `output`, recorded in the graph as a function of `input` with the given derivative.
  at::Tensor Recorded(const at::Tensor& input, at::Tensor output,
                      std::function<at::Tensor(const at::Tensor&)> backward);

  collective::Communicator* const communicator_;
  bool open_ = false, used_ = false;
  std::vector<at::Tensor> outputs_;  // The result of outputs().
};

}  // namespace muster
