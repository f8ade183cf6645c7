// Update rules over a fixed list of parameters, through ATen's fused or foreach kernels. One object
// for each optimizer of a replica, used by that replica's thread. Every replica applies the same
// gradients to the same state in the same order, so all replicas stay bit-identical.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/json.h"

namespace muster {

// As Keras names them; 0 switches off. At most one of the three.
struct ClipOptions {
  double clipvalue = 0;        // each element into [-v, v]
  double clipnorm = 0;         // each gradient tensor to at most this L2 norm
  double global_clipnorm = 0;  // all gradients together
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update, in place. gradients[i] belongs to parameter i; an undefined one leaves that
  // parameter and its slots alone. Gradients may be overwritten. Clipping comes first.
  virtual void Update(const std::vector<at::Tensor>& gradients, double learning_rate) = 0;
  virtual const std::vector<at::Tensor>& parameters() const = 0;
  // "momentum_buffer", "exp_avg", ... as torch.optim names them; the tensors of slot s, one for
  // each parameter, made at construction (never later), so that a checkpoint or an undo copy can
  // name and restore them in place.
  virtual const std::vector<std::string>& slot_names() const = 0;
  virtual const std::vector<at::Tensor>& slot(int s) const = 0;
  virtual std::string Describe() const = 0;  // "adam(beta1=0.9, beta2=0.999, epsilon=1e-07)"
};

// {"name": "sgd" | "adam" | "adamw" | "adagrad" | "rmsprop", ...hyperparameters, "clipvalue" |
// "clipnorm" | "global_clipnorm"}, or just the name as a string. The learning rate is not part of
// it. Unknown names and keys are ConfigurationErrors that suggest the nearest.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const Json& spec,
                                                         std::vector<at::Tensor> parameters);

// The learning rate that belongs to an optimizer where neither program nor job names one (Keras's:
// sgd 0.01, others 0.001).
double DefaultLearningRate(const Json& optimizer_spec);

// Scales the gradients in place as the options say. The result does not depend on the number of
// threads, so that replicas with different ones stay equal.
void ClipGradients(const std::vector<at::Tensor>& gradients, const ClipOptions& options);

}  // namespace muster
