// Weights that a run begins with, as the job's "load" and builder.load say. Needs no LibTorch.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "muster/json.h"
#include "muster/status.h"

namespace muster {

struct LoadSpec {
  std::string model;
  std::string path;  // the job's: as seen from its folder
  bool strict = true;
  std::map<std::string, std::string> rename;  // regular expressions
  std::string prefix;
  std::string where;  // for messages: "load.net", or "builder.load of \"net\""
};

// The job's "load": {"<model>": PATH or {"path", "strict", "rename", "prefix"}, ...}. Errors are
// ConfigurationErrors that name the key.
absl::StatusOr<std::vector<LoadSpec>> ParseLoad(const Json& load);
// ConfigurationError naming the first pattern that is no regular expression.
absl::Status CheckRename(const LoadSpec& spec);
// The name in the model of a tensor of the file; "" where it does not count. A ConfigurationError
// where a pattern of rename is too much for it.
absl::StatusOr<std::string> NameInModel(const LoadSpec& spec, const std::string& name);

}  // namespace muster
