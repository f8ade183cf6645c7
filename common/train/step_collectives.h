// Collective operations that a program calls in a step, as functions that autograd differentiates.
// Internal to this folder. Used by the replica's thread, and in a backward pass by autograd's own
// for it.
//
// All replicas must issue the same operations in the same order, in backward passes too. LibTorch
// runs the nodes of one device in the reverse order of their making, and a replica's graph is the
// others' (slices may be empty), so that is so if every replica's pass comes by every operation:
// outputs() are roots of the pass with gradient 0, for replicas whose loss does not depend on one.
// While gradients leave during a backward pass, their order would depend on the graph: a step that
// used an operation lets them go after the pass.
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

  // Between Begin and End of a step. They throw StatusError.
  at::Tensor AllReduce(const at::Tensor& value, ReduceOp op);
  at::Tensor AllGather(const at::Tensor& value);
  // In place, without a graph.
  void Sum(at::Tensor* values);

  void Begin();
  void End();
  bool used() const { return used_; }  // since Begin
  int size() const { return communicator_->size(); }
  const std::vector<at::Tensor>& outputs() const { return outputs_; }
  // They are of a micro-batch, or of what comes after an update.
  void ForgetOutputs() { outputs_.clear(); }
  // The first `count` only: the others are of a graph that is thrown away.
  void KeepOutputs(size_t count) { outputs_.resize(count); }

 private:
  void Check(const at::Tensor& value, const char* call);
  at::Tensor Recorded(const at::Tensor& input, at::Tensor output,
                      std::function<at::Tensor(const at::Tensor&)> backward);

  Communicator* const communicator_;
  bool open_ = false, used_ = false;
  std::vector<at::Tensor> outputs_;  // that need a gradient
};

}  // namespace muster
