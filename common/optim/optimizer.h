// An optimizer of one replica, which is one device's copy of the model. The optimizer updates a
// fixed list of parameters with ATen's fused or foreach kernels. Only the replica's thread uses the
// optimizer. All replicas apply the same gradients in the same order, so their parameters stay
// bit-identical.
//
// A slot is a part of the optimizer's state, such as a momentum, with one tensor for each
// parameter. A group is a set of parameters with hyperparameters of its own (optimizer_spec.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "common/optim/optimizer_spec.h"

namespace muster {

// Returns true if one call of a fused kernel may use both tensors. Fused kernels go through all
// tensors in memory order. The tensors must therefore have the same dtype, and the same strides in
// all dimensions whose size is not 1. REQUIRES: the tensors have the same shape.
bool SameLayout(const at::Tensor& a, const at::Tensor& b);

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Clips the gradients of all groups together, and updates parameters and slots in place.
  // `gradients[i]` belongs to parameter i. A parameter whose gradient is undefined stays unchanged,
  // and so do its slots. May overwrite the gradients.
  virtual void Update(const std::vector<at::Tensor>& gradients, double learning_rate) = 0;
  // Called when other code may have set the parameters. Examples are the start of a
  // generation (a period of training with fixed members) and the end of an action of
  // Step::on_commit.
  virtual void Begin() {}
  // Returns true if all replicas of this process share one copy of the variables and slots
  // (central_storage.h). In that case, slot_names is empty for the optimizers of all replicas
  // except the first.
  virtual bool central() const { return false; }
  virtual const std::vector<at::Tensor>& parameters() const = 0;
  // Returns the names of the slots, as in torch.optim, such as "momentum_buffer" or "exp_avg". An
  // optimizer has all its slots from the start. Checkpoints and undo copies can therefore restore
  // the slots in place.
  virtual const std::vector<std::string>& slot_names() const = 0;
  // Returns the tensors of slot number `s`, one for each parameter.
  virtual const std::vector<at::Tensor>& slot(int s) const = 0;
  // Returns an optimizer with the same rule for another list of parameters of the same replica.
  // `groups` is as in MakeOptimizer. The new optimizer copies the slots of each parameter that this
  // optimizer also has. The slots of all other parameters get initial values.
  virtual absl::StatusOr<std::unique_ptr<Optimizer>> WithParameters(
      std::vector<at::Tensor> parameters, std::vector<int> groups) const = 0;
  // Returns text such as "adam(beta1=0.9, beta2=0.999, epsilon=1e-07)".
  virtual std::string Describe() const = 0;
};

// Makes an optimizer. `spec` is the argument of ParseOptimizer. `groups[i]` is the group number of
// parameter i, a result of AssignGroups. If `groups` is empty, all parameters are in group 0.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const Json& spec,
                                                         std::vector<at::Tensor> parameters,
                                                         std::vector<int> groups);
// Makes the optimizer of a replica in a parameter-server job. The parameter servers hold the slots
// and make the updates. The slot tensors of this optimizer are on the device "meta": they have
// shapes and types, but no memory. Update must not be called.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeServedOptimizer(const Json& spec,
                                                               std::vector<at::Tensor> parameters,
                                                               std::vector<int> groups);

// Clips the gradients in place. The result has the same bits for any number of threads, so replicas
// with different numbers of threads stay equal.
void ClipGradients(const std::vector<at::Tensor>& gradients, const ClipOptions& options);

// Returns the L2 norm of all gradients together. Skips undefined gradients.
double GradientNorm(const std::vector<at::Tensor>& gradients);

}  // namespace muster
