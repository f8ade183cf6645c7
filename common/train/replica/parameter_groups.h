// The parameters of a program's optimizers. Each tensor is one parameter. If a tensor has several
// names (tied weights), the first name is used. The spec of an optimizer (JSON from the job or
// program) may divide the parameters into groups. Each group has its own options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/optim/optimizer_spec.h"

namespace muster {

class Replica;
struct NamedModel;
struct NamedOptimizer;
struct StartReport;

// Appends the model's parameters to the optimizer's candidates. Candidates are all parameters that
// the optimizer may train, including frozen ones. A tensor with several names is one candidate.
void AddParameters(const NamedModel& model, NamedOptimizer* optimizer);

// The number of elements in a model's parameters. Tied weights count once.
struct ParameterCount {
  int64_t trained = 0, frozen = 0;
};
ParameterCount CountParameters(const NamedModel& model);

// Returns the optimizer spec of the job, with the program's groups if the job has no key "groups".
// A job can remove the program's groups with "groups": [].
Json WithProgramGroups(const Json& of_job, const Json& of_program);

// Makes NamedOptimizer::rule of all optimizers, with slots for the candidates that require a
// gradient. Called when all models are known. Returns a ConfigurationError for a wrong spec. A
// group that matches no parameter is an error, and the error suggests similar names. A group that
// matches only parameters of earlier groups is an error too.
absl::Status MakeRules(Replica* replica);

// Returns lines of text that describe the groups of all optimizers. An optimizer with groups has a
// line for each group, and a line for the parameters without a group. An example is "optimizer
// \"sgd\", group 1 (*.bias: weight_decay=0): 4 parameters, 74 numbers". An optimizer without groups
// has no line.
std::vector<std::string> DescribeGroups(const Replica& replica);
// Sets the fields of `report` about the models: parameters, parameter_counts and groups.
void DescribeModels(const Replica& replica, StartReport* report);

}  // namespace muster
