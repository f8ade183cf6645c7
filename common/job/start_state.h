// The state from which the job starts. The chief decides it (chief/model_dir/resume.h).
#pragma once

#include <optional>
#include <string>

#include "common/checkpoint/checkpoint.h"

namespace muster {

struct StartState {
  std::string reason;     // One sentence about the decision. Empty: a new run starts.
  bool finished = false;  // The run was already trained to its end.
  std::optional<checkpoint::Snapshot> snapshot;  // The state to resume from. Absent: none.
};

}  // namespace muster
