// Updates a fixed list of parameters with ATen's fused or foreach kernels. One object for each
// optimizer of a replica, used by that replica's thread. Every replica applies the same gradients
// to the same state in the same order, so all replicas stay bit-identical.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "common/optim/optimizer_spec.h"

namespace muster {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Makes one update in place. gradients[i] belongs to parameter i; if it is undefined, that
  // parameter and its slots stay unchanged. May overwrite gradients. Clips first, over all groups
  // together.
  virtual void Update(const std::vector<at::Tensor>& gradients, double learning_rate) = 0;
  // Called when parameters may have been set from outside: before the first update of a generation,
  // and after actions of on_commit.
  virtual void Begin() {}
  // Returns whether the variables and their slots exist once in this process (central_storage.h).
  // Then only the first replica's optimizer names the slots.
  virtual bool central() const { return false; }
  virtual const std::vector<at::Tensor>& parameters() const = 0;
  // The slots' names, such as "momentum_buffer" or "exp_avg", follow torch.optim. Slot s has one
  // tensor for each parameter. All are made at construction and never later, so that checkpoints
  // and undo copies can name them and restore them in place.
  virtual const std::vector<std::string>& slot_names() const = 0;
  virtual const std::vector<at::Tensor>& slot(int s) const = 0;
  // Returns the same optimizer for these parameters of the same replica. `groups` is as for
  // MakeOptimizer. Slots of parameters that this optimizer has keep their values; others are new.
  virtual absl::StatusOr<std::unique_ptr<Optimizer>> WithParameters(
      std::vector<at::Tensor> parameters, std::vector<int> groups) const = 0;
  // Returns text such as "adam(beta1=0.9, beta2=0.999, epsilon=1e-07)".
  virtual std::string Describe() const = 0;
};

// `spec` is as for ParseOptimizer. `groups`, by parameter: the number of its group in the spec
// (AssignGroups). Empty: no parameter is in a group.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const Json& spec,
                                                         std::vector<at::Tensor> parameters,
                                                         std::vector<int> groups = {});

// Scales the gradients in place as the options say. The result does not depend on the number of
// threads, so that replicas with different numbers stay equal.
void ClipGradients(const std::vector<at::Tensor>& gradients, const ClipOptions& options);

// Returns the L2 norm of all gradients together. Skips undefined ones.
double GradientNorm(const std::vector<at::Tensor>& gradients);

}  // namespace muster
