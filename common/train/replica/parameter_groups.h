// The parameters of a program's models, as its optimizers see them: each tensor once, under its
// first name, in the group to which the optimizer's spec assigns it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/optim/optimizer_spec.h"

namespace muster {

class Replica;
struct NamedModel;
struct NamedOptimizer;

// Adds the model's parameters to the optimizer's candidates, in their order. A tensor with several
// names (tied weights) is one parameter with one set of slots.
void AddParameters(const NamedModel& model, NamedOptimizer* optimizer);

// The number of elements in a model's parameters. Tied weights count once.
struct ParameterCount {
  int64_t trained = 0, frozen = 0;
};
ParameterCount CountParameters(const NamedModel& model);

// Returns the job's optimizer spec, with the program's groups added if the job has no "groups" key.
// ("groups": [] in the job means no groups.)
Json WithProgramGroups(const Json& of_job, const Json& of_program);

// Makes the update rules of all optimizers, for the candidates that require a gradient. Called when
// all models are known. Returns a ConfigurationError with the nearest names for a group that
// matches no parameter of its optimizers. Also returns ConfigurationError for a group whose
// parameters all belong to earlier groups.
absl::Status MakeRules(Replica* replica);

// Describes the groups of each optimizer that has groups, in one line per group, and one line for
// the parameters without a group. A line is "optimizer \"sgd\", group 1 (*.bias: weight_decay=0): 4
// parameters, 74 numbers".
std::vector<std::string> DescribeGroups(const Replica& replica);

}  // namespace muster
