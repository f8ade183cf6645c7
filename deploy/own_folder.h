// Finds the folder of this binary, and sets the library path of the processes that it starts.
#pragma once

#include <string>

#include "muster/status.h"

namespace muster {

// Returns the folder of this binary. The other binaries are in the same folder.
absl::StatusOr<std::string> OwnFolder();

// If MUSTER_TORCH_ROOT is set, makes processes that this one starts later search its lib/ for
// LibTorch first. For an installed Muster on a host with LibTorch at another path than on the build
// host.
void FindTorchByEnvironment();

}  // namespace muster
