// The initial weights of a run, as the job's "load" and builder.load name them. Needs no LibTorch.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/status.h"

namespace muster {

struct LoadSpec {
  std::string model;
  std::string path;  // The job's is resolved against its folder.
  bool strict = true;
  std::map<std::string, std::string> rename;  // Regular expressions.
  std::string prefix;
  std::string where;  // For messages: "load.net", or "builder.load of \"net\"".
};

// Parses the job's "load": {"<model>": PATH or {"path", "strict", "rename", "prefix"}, ...}. Errors
// are ConfigurationErrors that name the key.
absl::StatusOr<std::vector<LoadSpec>> ParseLoad(const Json& load);
// Returns a ConfigurationError that names the first invalid regular expression.
absl::Status CheckRename(const LoadSpec& spec);
// Returns the model's name for a tensor of the file, or "" if the tensor lacks the prefix. Returns
// a ConfigurationError if the name is too long or too complex for a pattern of rename.
absl::StatusOr<std::string> NameInModel(const LoadSpec& spec, const std::string& name);

}  // namespace muster
