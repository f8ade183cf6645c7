// Assigns the ranks of a launcher to the tasks of a cluster.
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

// Returns the value of TF_CONFIG, or a ConfigurationError of one sentence if there are too few
// processes. The order of ranks is: chief, workers, parameter servers, evaluator. A member's rank
// in training is therefore its rank with the launcher.
absl::StatusOr<std::string> TfConfigOf(const Ranks& ranks, const RankRoles& roles);

}  // namespace muster::ranks
