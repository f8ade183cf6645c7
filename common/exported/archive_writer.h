// Writes trained weights into a copy of an exported program, for torch.export.load.
#pragma once

#include <map>
#include <string>

#include "common/exported/archive.h"

namespace muster::exported {

// Copies the file of `archive` to `output` and replaces all weights. `weights` must have all
// weights, by their names in the file and with the same shapes. All other members of the copy are
// identical. The file appears atomically, by a rename. Returns a ConfigurationError if a weight is
// missing or has another shape, or if the file cannot be written.
absl::Status WriteTrained(const Archive& archive, const std::map<std::string, at::Tensor>& weights,
                          const std::string& output);

}  // namespace muster::exported
