// The parameters of a program's optimizers. Each tensor is one parameter, under its first name, in
// the group to which the optimizer's spec assigns it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/optim/optimizer_spec.h"

namespace muster {

class Replica;
struct NamedModel;
struct NamedOptimizer;

// Appends the model's parameters to the optimizer's candidates. A tensor with several names (tied
// weights) is one parameter with one set of slots.
void AddParameters(const NamedModel& model, NamedOptimizer* optimizer);

// The number of elements in a model's parameters. Tied weights count once.
struct ParameterCount {
  int64_t trained = 0, frozen = 0;
};
ParameterCount CountParameters(const NamedModel& model);

// Returns the optimizer spec `of_job`. If it has no "groups" key, adds the groups of `of_program`.
// With "groups": [], the job removes the program's groups.
Json WithProgramGroups(const Json& of_job, const Json& of_program);

// Makes the rules of all optimizers, for the candidates that require a gradient. Called when all
// models are known. Returns a ConfigurationError for a group that matches no parameter, with the
// nearest names. Also returns one for a group whose parameters all belong to earlier groups.
absl::Status MakeRules(Replica* replica);

// Returns one line of text for each group, and one for the parameters without a group, of each
// optimizer that has groups. A line is "optimizer \"sgd\", group 1 (*.bias: weight_decay=0): 4
// parameters, 74 numbers".
std::vector<std::string> DescribeGroups(const Replica& replica);

}  // namespace muster
