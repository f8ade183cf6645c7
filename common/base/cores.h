#pragma once

namespace muster {

// Cores this process may use (its affinity mask); at least 1.
int AvailableCores();

}  // namespace muster
