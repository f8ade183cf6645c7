#pragma once

namespace muster {

// Returns the number of CPU cores in this process's affinity mask, but at least 1.
int AvailableCores();

}  // namespace muster
