// These functions let an evaluator leave the cores and GPUs of its host to the training tasks on
// the same host.
#pragma once

#include <string>

#include "common/cluster/cluster_spec.h"

namespace muster::evaluator {

// Returns true if the address of a chief, worker or ps of the cluster is on this host. May block
// for long, because the function resolves the host name of each task.
bool SharesHost(const ClusterSpec& cluster);

// Returns the devices of an evaluator. `devices` is the job's setting. `visible` is the value of
// CUDA_VISIBLE_DEVICES, or null if the variable is not set. If `shares_host` is true, returns "cpu"
// in two cases: if `devices` is "auto", or if `visible` is the empty text. In the first case, the
// training tasks use the GPUs. The second case occurs under `muster launch`. In all other cases,
// returns `devices`.
std::string EvaluatorDevices(const std::string& devices, bool shares_host, const char* visible);

// Lowers the priority of the calling thread, and of threads that this thread starts later.
void LowerPriority();

}  // namespace muster::evaluator
