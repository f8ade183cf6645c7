// Parameters of a program as its optimizers have them: each tensor once, under the first of its
// names, and in the group that the optimizer's spec puts it into.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/push_pull/optimizer_spec.h"

namespace muster {

class Replica;
struct NamedModel;
struct NamedOptimizer;

// Adds the model's parameters to the optimizer's candidates, in their order. A tensor that has
// several names (tied weights) is one parameter: its slots exist once.
void AddParameters(const NamedModel& model, NamedOptimizer* optimizer);

// The numbers in a model's parameters, those of tied weights once.
struct ParameterCount {
  int64_t trained = 0, frozen = 0;
};
ParameterCount CountParameters(const NamedModel& model);

// What the job chose, with the groups that the program gave where the job names none.
// ("groups": [] names none on purpose.)
Json WithProgramGroups(const Json& of_job, const Json& of_program);

// Makes the rules of all optimizers, for those candidates that require a gradient, once all models
// are known. A ConfigurationError names a group
// that matches no parameter of any optimizer that it was given to, and the nearest names; or one
// whose parameters are all in groups before it.
absl::Status MakeRules(Replica* replica);

// For each optimizer that has groups, a line for each of them and for what is in none:
// "optimizer \"sgd\", group 1 (*.bias: weight_decay=0): 4 parameters, 74 numbers".
std::vector<std::string> DescribeGroups(const Replica& replica);

}  // namespace muster
