// Assigns the ranks of a launcher such as srun or mpirun to the tasks of a cluster.
#pragma once

#include <string>

#include "common/cluster/cluster_config.h"
#include "deploy/ranks/ranks.h"
#include "muster/status.h"

namespace muster::ranks {

struct RankRoles {
  int ps = 0;              // --ps
  bool evaluator = false;  // --evaluator
  bool chief = true;       // False with --no-chief.
};

// Returns the value of TF_CONFIG for the task of ranks.rank. If there are too few processes,
// returns a ConfigurationError of one sentence. The ranks are, in order, the chief, the workers,
// the parameter servers and the evaluator. In training, the chief and the workers therefore have
// the same ranks as in the launcher.
absl::StatusOr<std::string> TfConfigOf(const Ranks& ranks, const RankRoles& roles);

}  // namespace muster::ranks
