// Finds the folder of this binary, and sets the library path of the processes that it starts.
#pragma once

#include <string>

#include "muster/status.h"

namespace muster {

// Returns the folder of this binary. The other binaries are in the same folder.
absl::StatusOr<std::string> OwnFolder();

// If MUSTER_TORCH_ROOT is set, adds its lib/ to the front of the library path of processes that
// this process starts later. An installed Muster needs it on a host where LibTorch is at another
// path than on the build host.
void FindTorchByEnvironment();

}  // namespace muster
