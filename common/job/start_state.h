// The state from which a job starts. The chief chooses the state (chief/model_dir/resume.h).
#pragma once

#include <optional>
#include <string>

#include "common/checkpoint/checkpoint.h"

namespace muster {

struct StartState {
  std::string reason;     // One sentence that explains the choice. Empty: a new run starts.
  bool finished = false;  // True if the run was already trained to its end.
  // The state to resume from. Absent: the job starts from the program's initial state.
  std::optional<checkpoint::Snapshot> snapshot;
};

}  // namespace muster
