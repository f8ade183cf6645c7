// An optimizer as the job file names it: the rule, its hyperparameters, clipping. One reading for
// whoever applies it: the replicas (common/train/optimizer.h) and the parameter servers (ps/).
// Needs no LibTorch.
//
// Formulas: torch.optim's for all but FTRL, which is Keras's (McMahan et al. 2013, "Ad Click
// Prediction", with L2 shrinkage and the rate's power fixed at -0.5). Defaults are Keras's.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "muster/json.h"

namespace muster {

// As Keras names them; 0 switches off. At most one of the three.
struct ClipOptions {
  double clipvalue = 0;        // each element into [-v, v]
  double clipnorm = 0;         // each gradient tensor to at most this L2 norm
  double global_clipnorm = 0;  // all gradients together
};

struct SgdSpec {
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;
};
struct AdamSpec {
  bool decoupled = false;  // AdamW: weight_decay shrinks the parameter, not the gradient
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-7, weight_decay = 0;
  bool amsgrad = false;
};
struct AdagradSpec {
  double initial_accumulator_value = 0.1, epsilon = 1e-7, weight_decay = 0;
};
struct RmsPropSpec {
  double rho = 0.9, momentum = 0, epsilon = 1e-7, weight_decay = 0;
  bool centered = false;
};
struct FtrlSpec {
  double initial_accumulator_value = 0.1;
  double l1 = 0, l2 = 0, l2_shrinkage = 0, beta = 0;
};
using RuleSpec = std::variant<SgdSpec, AdamSpec, AdagradSpec, RmsPropSpec, FtrlSpec>;

struct OptimizerSpec {
  RuleSpec rule;
  ClipOptions clip;
};

const std::vector<std::string>& OptimizerNames();

// {"name": "sgd" | "adam" | "adamw" | "adagrad" | "rmsprop" | "ftrl", ...hyperparameters,
// "clipvalue" | "clipnorm" | "global_clipnorm"}, or just the name as a string. The learning rate is
// not part of it. Unknown names and keys are ConfigurationErrors that suggest the nearest.
absl::StatusOr<OptimizerSpec> ParseOptimizer(const Json& json);

// The learning rate that belongs to an optimizer where neither program nor job names one (Keras's:
// sgd 0.01, others 0.001).
double DefaultLearningRate(const Json& json);

// "momentum_buffer", "exp_avg", ... as torch.optim names them: the state that the rule keeps for
// each parameter, in the parameter's shape; but "step" is one number.
std::vector<std::string> SlotNames(const RuleSpec& rule);
// What every element of that slot begins with.
double InitialSlotValue(const RuleSpec& rule, const std::string& slot);

// "adam(beta1=0.9, beta2=0.999, epsilon=1e-07, ...)".
std::string Describe(const OptimizerSpec& spec);

}  // namespace muster
// A gradient of zeros changes neither parameter nor slots, so that it is the same as none.
bool ZeroGradientIsNone(const RuleSpec& rule);
// Whether FTRL makes an update at this rate: it divides by it, in single precision.
inline bool FtrlUpdates(double learning_rate) { return learning_rate >= 1e-30; }

