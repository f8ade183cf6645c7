// Writes a trained program back, for torch.export.load.
#pragma once

#include <map>
#include <string>

#include "common/exported/archive.h"

namespace muster::exported {

// The file of `archive` once more, as `output`, with these weights in place of its own: by their
// names there, all of them, of the same shapes. Everything else stays as it is, bit by bit. The
// file appears by one rename. Errors: a ConfigurationError names the weight that is missing or does
// not fit, or says why the file cannot be written.
absl::Status WriteTrained(const Archive& archive, const std::map<std::string, at::Tensor>& weights,
                          const std::string& output);

}  // namespace muster::exported
