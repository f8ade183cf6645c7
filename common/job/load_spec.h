// Describes the initial weights of a model, from the job's "load" or a program's builder.load.
// Needs no LibTorch.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/status.h"

namespace muster {

struct LoadSpec {
  std::string model;
  std::string path;    // A relative path in a job is resolved against the job's folder.
  bool strict = true;  // If true, the file and the model must have the same tensors.
  std::map<std::string, std::string> rename;  // Replacements, by regular expression.
  std::string prefix;                         // Only tensors with this prefix are used.
  std::string where;  // The source of this spec: "load.net", or "builder.load of \"net\"".
};

// Parses the job's "load". Its keys are models. A value is a path, or an object with "path",
// "strict", "rename" and "prefix". A ConfigurationError names the key.
absl::StatusOr<std::vector<LoadSpec>> ParseLoad(const Json& load);
// Returns a ConfigurationError that names the first invalid regular expression.
absl::Status CheckRename(const LoadSpec& spec);
// Converts the name of a tensor in the file to its name in the model. Returns "" if the name lacks
// the prefix. Returns a ConfigurationError if the name is too long or too complex for a regular
// expression of `rename`.
absl::StatusOr<std::string> NameInModel(const LoadSpec& spec, const std::string& name);

}  // namespace muster
