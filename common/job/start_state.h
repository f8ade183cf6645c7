// The state from which a start of the job continues, as the chief decides it.
#pragma once

#include <optional>
#include <string>

#include "common/checkpoint/checkpoint.h"

namespace muster {

struct StartState {
  std::string reason;  // A sentence. Empty: the job starts from nothing.
  bool finished = false;
  std::optional<checkpoint::Snapshot> snapshot;
};

}  // namespace muster
