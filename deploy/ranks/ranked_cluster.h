// The cluster whose tasks are the processes of a launcher: which rank is which task.
#pragma once

#include <string>

#include "common/cluster/cluster_config.h"
#include "deploy/ranks/ranks.h"
#include "muster/status.h"

namespace muster::ranks {

struct RankRoles {
  int ps = 0;              // --ps
  bool evaluator = false;  // --evaluator
  bool chief = true;       // not --no-chief
};

// Ranks keep their order: the chief is rank 0, then come the workers. A member's rank in training
// is therefore its rank with the launcher. The parameter servers follow, the evaluator is last.
// Returns the value of TF_CONFIG, or a ConfigurationError of one sentence if there are too few
// processes.
absl::StatusOr<std::string> TfConfigOf(const Ranks& ranks, const RankRoles& roles);

}  // namespace muster::ranks
