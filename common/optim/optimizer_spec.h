// An optimizer as the job file describes it: the rule, its hyperparameters, and clipping. The
// replicas (common/optim/optimizer.h) and the parameter servers (ps/) share this parser. Needs no
// LibTorch.
//
// Formulas are those of torch.optim, except FTRL and row-wise Adagrad. FTRL is Keras's (McMahan et
// al. 2013, "Ad Click Prediction", with L2 shrinkage and the power of the rate fixed at -0.5). It
// leaves parameter and slots unchanged if the rate is 0, as at the start of a warm-up. Row-wise
// Adagrad is that of DLRM and FBGEMM (Naumov et al. 2019, "Deep Learning Recommendation Model").
// Defaults are Keras's.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "muster/json.h"

namespace muster {

// Named as in Keras. 0 disables an option. At most one of the three may be set.
struct ClipOptions {
  double clipvalue = 0;        // Clips each element into [-v, v].
  double clipnorm = 0;         // Scales each gradient tensor to at most this L2 norm.
  double global_clipnorm = 0;  // Scales all gradients together to at most this L2 norm.
};

struct SgdSpec {
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;
};
struct AdamSpec {
  // AdamW: weight_decay is applied to the parameter instead of the gradient.
  bool decoupled = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-7, weight_decay = 0;
  bool amsgrad = false;
};
struct AdagradSpec {
  double initial_accumulator_value = 0.1, epsilon = 1e-7, weight_decay = 0;
};
// For rows of embedding tables only. Keeps one accumulator per row, of the mean of the squares of
// the gradient's elements.
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

// A subset of the optimizer's parameters with its own hyperparameters.
struct OptimizerGroup {
  std::vector<std::string> parameters;  // Globs over the parameter names in checkpoints.
  RuleSpec rule;                        // Same kind and slots as the optimizer's rule.
  double learning_rate_scale = 1;
  std::string text;  // The settings of the group: "weight_decay=0, learning_rate_scale=0.1".
};

// Groups are numbered from 1, in the order of the job file. Group 0 holds the parameters that are
// in no group.
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

// Parses {"name": "sgd" | "adam" | "adamw" | "adagrad" | "rmsprop" | "ftrl" | "rowwise_adagrad",
// ...hyperparameters, "clipvalue" | "clipnorm" | "global_clipnorm", "groups": [{"parameters": glob
// or globs, "learning_rate_scale": 1, ...hyperparameters}]}, or only the name as a string. The
// learning rate is not part of it. A group inherits the optimizer's hyperparameters and may
// override them, unless that changes its slots. Unknown names and keys are ConfigurationErrors that
// suggest the nearest known one.
absl::StatusOr<OptimizerSpec> ParseOptimizer(const Json& json);
// Returns the optimizer of one group's parameters, in the form that ParseOptimizer reads, without
// groups and without the scale. REQUIRES: ParseOptimizer(json) is OK and has such a group.
Json OptimizerOfGroup(const Json& json, int group);

// Returns the group number of each parameter: the first group with a glob that matches any of the
// parameter's names. `matches` counts for each group the parameters that it matches, whichever
// group they are assigned to.
std::vector<int> AssignGroups(const OptimizerSpec& spec,
                              const std::vector<std::vector<std::string>>& names,
                              std::vector<int>* matches);

// The learning rate of an optimizer if neither program nor job sets one (Keras's: sgd 0.01, others
// 0.001).
double DefaultLearningRate(const Json& json);

// True if the rule works only for rows of embedding tables, not for models.
inline bool ForTablesAlone(const RuleSpec& rule) {
  return std::holds_alternative<RowwiseAdagradSpec>(rule);
}

// The names of the rule's state per parameter, as in torch.optim ("momentum_buffer", "exp_avg",
// ...). Slots have the parameter's shape, except "step", which is one number.
std::vector<std::string> SlotNames(const RuleSpec& rule);
// The initial value of every element of that slot.
double InitialSlotValue(const RuleSpec& rule, const std::string& slot);

// True if a gradient of zeros changes neither parameter nor slots, and so is equivalent to no
// gradient.
bool ZeroGradientIsNone(const RuleSpec& rule);
// True if FTRL makes an update at this rate. It divides by the rate in single precision.
inline bool FtrlUpdates(double learning_rate) { return learning_rate >= 1e-30; }

// "adam(beta1=0.9, beta2=0.999, epsilon=1e-07, ...)".
std::string Describe(const OptimizerSpec& spec);

}  // namespace muster
