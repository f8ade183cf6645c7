// Update rules over a fixed list of parameters, through ATen's fused or foreach kernels. One object
// for each optimizer of a replica, used by that replica's thread. Every replica applies the same
// gradients to the same state in the same order, so all replicas stay bit-identical.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "common/push_pull/optimizer_spec.h"

namespace muster {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update, in place. gradients[i] belongs to parameter i; an undefined one leaves that
  // parameter and its slots alone. Gradients may be overwritten. Clipping comes first, over all
  // groups together.
  virtual void Update(const std::vector<at::Tensor>& gradients, double learning_rate) = 0;
  // The parameters may have been set from outside: before the first update of a generation, and
  // after actions of on_commit.
  virtual void Begin() {}
  // The variables and their slots exist once in this process (central_storage.h); only the first
  // replica's optimizer names the slots.
  virtual bool central() const { return false; }
  virtual const std::vector<at::Tensor>& parameters() const = 0;
  // "momentum_buffer", "exp_avg", ... as torch.optim names them; the tensors of slot s, one for
  // each parameter, made at construction (never later), so that a checkpoint or an undo copy can
  // name and restore them in place.
  virtual const std::vector<std::string>& slot_names() const = 0;
  virtual const std::vector<at::Tensor>& slot(int s) const = 0;
  // The same for these parameters of the same replica, their groups as MakeOptimizer has them:
  // slots of those that this one has keep their values, others are new.
  virtual absl::StatusOr<std::unique_ptr<Optimizer>> WithParameters(
      std::vector<at::Tensor> parameters, std::vector<int> groups) const = 0;
  virtual std::string Describe() const = 0;  // "adam(beta1=0.9, beta2=0.999, epsilon=1e-07)"
};

// As ParseOptimizer says. `groups`, by parameter: the number of its group in the spec
// (AssignGroups); empty: all are in none.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const Json& spec,
                                                         std::vector<at::Tensor> parameters,
                                                         std::vector<int> groups = {});

// Scales the gradients in place as the options say. The result does not depend on the number of
// threads, so that replicas with different ones stay equal.
void ClipGradients(const std::vector<at::Tensor>& gradients, const ClipOptions& options);

// The L2 norm of all of them together; undefined ones do not count.
double GradientNorm(const std::vector<at::Tensor>& gradients);

}  // namespace muster
