// Where this binary lies, and what it hands to those beside it.
#pragma once

#include <string>

#include "muster/status.h"

namespace muster {

// The folder of this binary; the others lie beside it.
absl::StatusOr<std::string> OwnFolder();

// Where MUSTER_TORCH_ROOT is set, what this process starts from now on looks for LibTorch in its
// lib/ first: for an installed Muster whose LibTorch is not where it was when Muster was built.
void FindTorchByEnvironment();

}  // namespace muster
