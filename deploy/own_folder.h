// Finds the folder of this binary, and sets the library path for processes that this binary starts.
#pragma once

#include <string>

#include "muster/status.h"

namespace muster {

// Returns the folder of this binary. Muster's other binaries are in the same folder.
absl::StatusOr<std::string> OwnFolder();

// If the environment variable MUSTER_TORCH_ROOT is set, adds $MUSTER_TORCH_ROOT/lib to the front of
// LD_LIBRARY_PATH. Processes that this process starts after the call find LibTorch there. Users set
// the variable on hosts where LibTorch is at another path than on the build host.
void FindTorchByEnvironment();

}  // namespace muster
