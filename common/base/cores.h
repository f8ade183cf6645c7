#pragma once

namespace muster {

// Returns the number of cores in this process's affinity mask, at least 1.
int AvailableCores();

}  // namespace muster
