// Describes the files with the initial weights of models. The files are named in the job's "load",
// or by calls of builder.load in a program. Needs no LibTorch.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/status.h"

namespace muster {

struct LoadSpec {
  std::string model;  // The name of the model.
  // The path of the weights, such as a safetensors file. In a job, a relative path is relative to
  // Job::folder.
  std::string path;
  bool strict = true;  // If true, the file and the model must have the same tensors.
  // The keys are regular expressions (ECMAScript). In the names of tensors, each match of a key is
  // replaced by the value.
  std::map<std::string, std::string> rename;
  // Only tensors whose names begin with the prefix are used. The prefix is removed before `rename`
  // is applied.
  std::string prefix;
  std::string where;  // The job key or call that names these weights, for messages: "load.net".
};

// Parses the job's "load". The keys of `load` are names of models. A value is a path, or an object
// with "path", "strict", "rename" and "prefix". Returns a ConfigurationError that names the key.
absl::StatusOr<std::vector<LoadSpec>> ParseLoad(const Json& load);
// Returns a ConfigurationError that names the first invalid regular expression.
absl::Status CheckRename(const LoadSpec& spec);
// Converts the name of a tensor in the file to the tensor's name in the model. Returns "" if `name`
// does not begin with the prefix. Returns a ConfigurationError if `name` is too long or too complex
// for a regular expression of `rename`.
absl::StatusOr<std::string> NameInModel(const LoadSpec& spec, const std::string& name);

}  // namespace muster
