// An optimizer of one replica. It updates a fixed list of parameters with ATen's fused or foreach
// kernels. Only the replica's thread uses it. Every replica applies the same gradients to the same
// state in the same order, so all replicas stay bit-identical.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "common/optim/optimizer_spec.h"

namespace muster {

// Returns true if a fused kernel may use both tensors, which have the same shape, in one call. The
// kernels traverse all tensors in memory order, so strides must be equal, except in dimensions of
// size 1.
bool SameLayout(const at::Tensor& a, const at::Tensor& b);

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Makes one update in place. `gradients[i]` belongs to parameter i. If it is undefined, the
  // parameter and its slots stay unchanged. Clips the gradients of all groups together before the
  // update. May overwrite the gradients.
  virtual void Update(const std::vector<at::Tensor>& gradients, double learning_rate) = 0;
  // Called when other code may have set the parameters: before the first update of a generation,
  // and after actions of on_commit.
  virtual void Begin() {}
  // Returns true if all replicas of this process share one copy of the variables and slots
  // (central_storage.h). In that case only the first replica's optimizer has slot names.
  virtual bool central() const { return false; }
  virtual const std::vector<at::Tensor>& parameters() const = 0;
  // Returns the names of the slots, as in torch.optim: "momentum_buffer", "exp_avg". The
  // constructor makes all slots, and none is added later. Checkpoints and undo copies can therefore
  // name the slots and restore them in place.
  virtual const std::vector<std::string>& slot_names() const = 0;
  virtual const std::vector<at::Tensor>& slot(int s) const = 0;
  // Returns an optimizer of the same rule for other parameters of the same replica. `groups` is as
  // for MakeOptimizer. A parameter that this optimizer already has keeps the values of its slots.
  // The slots of other parameters get initial values.
  virtual absl::StatusOr<std::unique_ptr<Optimizer>> WithParameters(
      std::vector<at::Tensor> parameters, std::vector<int> groups) const = 0;
  // Returns text such as "adam(beta1=0.9, beta2=0.999, epsilon=1e-07)".
  virtual std::string Describe() const = 0;
};

// `spec` is as for ParseOptimizer. `groups[i]` is the group number of parameter i (see
// AssignGroups). If `groups` is empty, all parameters are in group 0.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const Json& spec,
                                                         std::vector<at::Tensor> parameters,
                                                         std::vector<int> groups = {});

// Clips the gradients in place. The result does not depend on the number of threads, so replicas
// with different thread counts stay equal.
void ClipGradients(const std::vector<at::Tensor>& gradients, const ClipOptions& options);

// Returns the L2 norm of all gradients together. Skips undefined gradients.
double GradientNorm(const std::vector<at::Tensor>& gradients);

}  // namespace muster
