#include "deploy/command.h"

#include <fmt/core.h>

#include <cstdio>

namespace muster {

int ReportError(const char* name, const absl::Status& status) {
  fmt::print(stderr, "muster {}: {}\n", name, Message(status));
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace muster
