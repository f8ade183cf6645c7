// The folder of this binary, and the library path of the processes that it starts.
#pragma once

#include <string>

#include "muster/status.h"

namespace muster {

// Returns the folder of this binary. The other binaries are in the same folder.
absl::StatusOr<std::string> OwnFolder();

// If MUSTER_TORCH_ROOT is set, processes started from now on search its lib/ for LibTorch first.
// This serves an installed Muster whose LibTorch is not at the path of the build.
void FindTorchByEnvironment();

}  // namespace muster
