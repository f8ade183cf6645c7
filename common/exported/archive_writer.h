// Writes trained weights into a copy of an exported program, for torch.export.load.
#pragma once

#include <map>
#include <string>

#include "common/exported/graph/archive.h"

namespace muster::exported {

// Copies the file of `archive` to `output`, and replaces the parameters and buffers with the values
// in `weights`. The keys of `weights` are the names in `archive.weights`. All other members of the
// zip file are copied unchanged. `output` is written under a temporary name and then renamed.
// Returns a ConfigurationError if a weight is missing or has another shape or type, or if `output`
// cannot be written.
absl::Status WriteTrained(const Archive& archive, const std::map<std::string, at::Tensor>& weights,
                          const std::string& output);

}  // namespace muster::exported
