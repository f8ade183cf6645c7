#include "common/base/process/restarts.h"

#include <algorithm>
#include <cstdlib>

namespace muster {

int Restarts() {
  const char* text = std::getenv(kRestartsVariable);
  return text == nullptr ? 0 : std::max(0, std::atoi(text));
}

}  // namespace muster
