// Parses the description of an optimizer in the job file: the rule, its hyperparameters, and
// clipping. A rule is the formula of an update, such as Adam. Replicas (common/optim/optimizer.h)
// and parameter servers (ps/) use this parser. Needs no LibTorch.
//
// The formulas are as in torch.optim, except FTRL and row-wise Adagrad. FTRL has the formula of
// Keras (McMahan et al. 2013, "Ad Click Prediction", with L2 shrinkage and a learning-rate power of
// -0.5). If the learning rate is 0, as at the start of a warm-up, FTRL leaves the parameter and its
// slots unchanged. Row-wise Adagrad has the formula of DLRM and FBGEMM (Naumov et al. 2019, "Deep
// Learning Recommendation Model"). The default hyperparameters are the same as in Keras.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "muster/json.h"

namespace muster {

// Clipping of gradients. The options have Keras's names. 0 disables an option. At most one option
// may be above 0.
struct ClipOptions {
  double clipvalue = 0;        // Clips each element to [-clipvalue, clipvalue].
  double clipnorm = 0;         // Scales each gradient tensor to at most this L2 norm.
  double global_clipnorm = 0;  // Scales all gradients together to at most this L2 norm.
};

struct SgdSpec {
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;
};
struct AdamSpec {
  // True for AdamW. AdamW applies weight_decay to the parameter, and Adam applies it to the
  // gradient.
  bool decoupled = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-7, weight_decay = 0;
  bool amsgrad = false;
};
struct AdagradSpec {
  double initial_accumulator_value = 0.1, epsilon = 1e-7, weight_decay = 0;
};
// A rule for rows of embedding tables only. Each row has one accumulator. An update adds the mean
// of the squares of the gradient's elements to the accumulator.
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
  // Globs that match the names that the parameters have in checkpoints.
  std::vector<std::string> parameters;
  RuleSpec rule;  // The same kind of rule as OptimizerSpec::rule, with the same slots.
  double learning_rate_scale = 1;
  std::string text;  // The settings of the group, such as "weight_decay=0".
};

// Groups are numbered from 1, in the order of the job file. Group 0 has the parameters that are in
// no other group.
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

// Parses the name of a rule, or an object with these keys:
//   "name": "sgd", "adam", "adamw", "adagrad", "rmsprop", "ftrl" or "rowwise_adagrad"
//   the hyperparameters of the rule
//   one of "clipvalue", "clipnorm" and "global_clipnorm"
//   "groups": a list of objects {"parameters": a glob or a list of globs, "learning_rate_scale": 1,
//   hyperparameters}
// A hyperparameter that a group does not set has the optimizer's value. A group must not set a
// hyperparameter to a value that adds or removes a slot of the rule. The learning rate is a
// separate key of the job. Returns a ConfigurationError for an unknown name or key. The error
// suggests the most similar valid name or key.
absl::StatusOr<OptimizerSpec> ParseOptimizer(const Json& json);
// Returns JSON that describes the rule of one group, as an argument for ParseOptimizer. The JSON
// has neither "groups" nor "learning_rate_scale". REQUIRES: ParseOptimizer(json) is OK, and the
// group exists.
Json OptimizerOfGroup(const Json& json, int group);

// Returns the group number of each parameter. `names` has all names of each parameter. A parameter
// is in the first group with a glob that matches one of its names, or else in group 0. Sets
// `matches` to the number of parameters that the globs of each group match. A parameter counts for
// each group with a glob that matches, even if the parameter is in another group.
std::vector<int> AssignGroups(const OptimizerSpec& spec,
                              const std::vector<std::vector<std::string>>& names,
                              std::vector<int>* matches);

// Returns Keras's default learning rate: 0.01 for sgd, 0.001 for all other rules. The default
// applies if neither the program nor the job sets a learning rate.
double DefaultLearningRate(const Json& json);

// Returns true if the rule works only for rows of embedding tables.
inline bool ForTablesAlone(const RuleSpec& rule) {
  return std::holds_alternative<RowwiseAdagradSpec>(rule);
}

// Returns the names of the rule's slots, as in torch.optim, such as "momentum_buffer" or "exp_avg".
// A slot is a tensor of the optimizer's state for a parameter. A slot has the parameter's shape.
// There are two exceptions: "step" is one number, and row-wise Adagrad has one number for each row.
std::vector<std::string> SlotNames(const RuleSpec& rule);
// Returns the initial value of all elements of a slot.
double InitialSlotValue(const RuleSpec& rule, const std::string& slot);

// Returns true if an update with a gradient of zeros leaves the parameter and its slots unchanged.
bool ZeroGradientIsNone(const RuleSpec& rule);
// Returns true if FTRL makes an update at this learning rate. FTRL skips updates at rates below
// 1e-30, because FTRL divides by the rate in single precision.
inline bool FtrlUpdates(double learning_rate) { return learning_rate >= 1e-30; }

// Returns text such as "adam(beta1=0.9, beta2=0.999, epsilon=1e-07, ...)".
std::string Describe(const OptimizerSpec& spec);

}  // namespace muster
