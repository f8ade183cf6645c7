// An optimizer as the job file names it: the rule, its hyperparameters, clipping. One reading for
// whoever applies it: the replicas (common/train/optimizer.h) and the parameter servers (ps/).
// Needs no LibTorch.
//
// Formulas: torch.optim's for all but FTRL, which is Keras's (McMahan et al. 2013, "Ad Click
// Prediction", with L2 shrinkage and the rate's power fixed at -0.5), and leaves parameter and
// slots alone where the rate is 0, as at the beginning of a warm-up, and row-wise Adagrad, which is
// DLRM's and FBGEMM's (Naumov et al. 2019, "Deep Learning Recommendation Model"). Defaults are
// Keras's.
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
// For rows of embedding tables alone: one accumulator for each row, of the mean of the squares of
// its gradient's elements.
struct RowwiseAdagradSpec {
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
using RuleSpec =
    std::variant<SgdSpec, AdamSpec, AdagradSpec, RmsPropSpec, FtrlSpec, RowwiseAdagradSpec>;

// Some of the optimizer's parameters, with hyperparameters of their own.
struct OptimizerGroup {
  std::vector<std::string> parameters;  // globs over the names of checkpoints
  RuleSpec rule;                        // the optimizer's kind, with the same slots
  double learning_rate_scale = 1;
  std::string text;  // what it sets: "weight_decay=0, learning_rate_scale=0.1"
};

// Groups are numbered from 1, in the order of the job file; 0 are the parameters of none.
struct OptimizerSpec {
  RuleSpec rule;
  ClipOptions clip;
  std::vector<OptimizerGroup> groups;
  const RuleSpec& rule_of(int group) const { return group == 0 ? rule : groups[group - 1].rule; }
  double scale_of(int group) const {
    return group == 0 ? 1 : groups[group - 1].learning_rate_scale;
  }
};

const std::vector<std::string>& OptimizerNames();

// {"name": "sgd" | "adam" | "adamw" | "adagrad" | "rmsprop" | "ftrl" | "rowwise_adagrad",
// ...hyperparameters, "clipvalue" | "clipnorm" | "global_clipnorm", "groups": [{"parameters": glob
// or globs, "learning_rate_scale": 1, ...hyperparameters}]}, or just the name as a string. The
// learning rate is not part of it. A group has the optimizer's hyperparameters but for those that
// it sets, which may not give it other slots. Unknown names and keys are ConfigurationErrors that
// suggest the nearest.
absl::StatusOr<OptimizerSpec> ParseOptimizer(const Json& json);
// The optimizer of that group's parameters alone, as ParseOptimizer reads it: without groups, and
// without the scale. REQUIRES: ParseOptimizer(json) is OK and has such a group.
Json OptimizerOfGroup(const Json& json, int group);

// By parameter, the number of its group: the first one of which a glob matches any of its names.
// `matches`, by group of the spec, counts the parameters of which it matches a name, whichever
// group they are in.
std::vector<int> AssignGroups(const OptimizerSpec& spec,
                              const std::vector<std::vector<std::string>>& names,
                              std::vector<int>* matches);

// The learning rate that belongs to an optimizer where neither program nor job names one (Keras's:
// sgd 0.01, others 0.001).
double DefaultLearningRate(const Json& json);

// Whether the rule is for rows of embedding tables, and not for models.
inline bool ForTablesAlone(const RuleSpec& rule) {
  return std::holds_alternative<RowwiseAdagradSpec>(rule);
}

// "momentum_buffer", "exp_avg", ... as torch.optim names them: the state that the rule keeps for
// each parameter, in the parameter's shape; but "step" is one number.
std::vector<std::string> SlotNames(const RuleSpec& rule);
// What every element of that slot begins with.
double InitialSlotValue(const RuleSpec& rule, const std::string& slot);

// A gradient of zeros changes neither parameter nor slots, so that it is the same as none.
bool ZeroGradientIsNone(const RuleSpec& rule);
// Whether FTRL makes an update at this rate: it divides by it, in single precision.
inline bool FtrlUpdates(double learning_rate) { return learning_rate >= 1e-30; }

// "adam(beta1=0.9, beta2=0.999, epsilon=1e-07, ...)".
std::string Describe(const OptimizerSpec& spec);

}  // namespace muster
