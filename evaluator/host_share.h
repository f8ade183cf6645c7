// An evaluator that shares its host with members of the training leaves the cores to them.
#pragma once

#include "common/cluster/cluster_spec.h"

namespace muster {

// Whether a chief, worker or ps of the cluster has its address on this host. Looks names up, which
// takes a while where there are many or none answers.
bool SharesHost(const ClusterSpec& cluster);

// This thread, and those that it starts from now on, get what the others leave of the cores.
void LowerPriority();

}  // namespace muster
