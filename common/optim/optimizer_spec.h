// The description of an optimizer in the job file: the rule, its hyperparameters, and clipping. The
// replicas (common/optim/optimizer.h) and the parameter servers (ps/) share this parser. This code
// does not need LibTorch.
//
// The formulas are those of torch.optim, except FTRL and row-wise Adagrad. FTRL is that of Keras
// (McMahan et al. 2013, "Ad Click Prediction", with L2 shrinkage and a learning-rate power of
// -0.5). If the learning rate is 0, as at the start of a warm-up, FTRL leaves the parameter and its
// slots unchanged. Row-wise Adagrad is that of DLRM and FBGEMM (Naumov et al. 2019, "Deep Learning
// Recommendation Model"). The defaults are those of Keras.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "muster/json.h"

namespace muster {

// The options have Keras's names. 0 disables an option. At most one of them may be set.
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
  // True for AdamW, which applies weight_decay to the parameter instead of the gradient.
  bool decoupled = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-7, weight_decay = 0;
  bool amsgrad = false;
};
struct AdagradSpec {
  double initial_accumulator_value = 0.1, epsilon = 1e-7, weight_decay = 0;
};
// A rule only for rows of embedding tables. Each row has one accumulator: the sum over updates of
// the mean square of the gradient's elements.
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
  std::vector<std::string> parameters;  // Globs that match parameter names as in checkpoints.
  RuleSpec rule;                        // Has the kind and the slots of the optimizer's rule.
  double learning_rate_scale = 1;
  std::string text;  // The settings of the group: "weight_decay=0, learning_rate_scale=0.1".
};

// Groups are numbered from 1, in the order of the job file. Group 0 has all other parameters.
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
// or globs, "learning_rate_scale": 1, ...hyperparameters}]}. A string with only the name is also
// accepted. The learning rate is a separate key of the job. A group inherits the optimizer's
// hyperparameters. It may override those that do not change its slots. Returns a ConfigurationError
// for an unknown name or key, which suggests the nearest known one.
absl::StatusOr<OptimizerSpec> ParseOptimizer(const Json& json);
// Returns the optimizer of one group as JSON for ParseOptimizer. The JSON has neither groups nor
// learning_rate_scale. REQUIRES: ParseOptimizer(json) is OK, and the group exists.
Json OptimizerOfGroup(const Json& json, int group);

// Returns the group number of each parameter: the first group with a glob that matches any name of
// the parameter. Sets `matches` to the number of parameters that each group's globs match,
// including those that an earlier group has.
std::vector<int> AssignGroups(const OptimizerSpec& spec,
                              const std::vector<std::vector<std::string>>& names,
                              std::vector<int>* matches);

// Returns the learning rate for a program and a job that set none. It is Keras's: 0.01 for sgd,
// 0.001 for others.
double DefaultLearningRate(const Json& json);

// Returns true if the rule works only for rows of embedding tables.
inline bool ForTablesAlone(const RuleSpec& rule) {
  return std::holds_alternative<RowwiseAdagradSpec>(rule);
}

// Returns the names of the rule's slots, as in torch.optim ("momentum_buffer", "exp_avg", ...). A
// slot is the optimizer's state for one parameter. It has the parameter's shape, except "step",
// which is one number.
std::vector<std::string> SlotNames(const RuleSpec& rule);
// Returns the initial value of all elements of a slot.
double InitialSlotValue(const RuleSpec& rule, const std::string& slot);

// Returns true if an update with a gradient of zeros changes neither the parameter nor its slots.
bool ZeroGradientIsNone(const RuleSpec& rule);
// Returns true if FTRL makes an update at this rate. FTRL divides by the rate in single precision,
// so it needs a minimum.
inline bool FtrlUpdates(double learning_rate) { return learning_rate >= 1e-30; }

// Returns text such as "adam(beta1=0.9, beta2=0.999, epsilon=1e-07, ...)".
std::string Describe(const OptimizerSpec& spec);

}  // namespace muster
