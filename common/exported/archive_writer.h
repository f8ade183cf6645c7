// Writes a trained program back, for torch.export.load.
#pragma once

#include <map>
#include <string>

#include "common/exported/archive.h"

namespace muster::exported {

// Copies the file of `archive` to `output` and replaces its weights. `weights` has all of them, by
// their names in the file and with the same shapes. Everything else stays the same, bit by bit. The
// file appears by one rename. A ConfigurationError names the weight that is missing or does not
// fit, or says why the file cannot be written.
absl::Status WriteTrained(const Archive& archive, const std::map<std::string, at::Tensor>& weights,
                          const std::string& output);

}  // namespace muster::exported
