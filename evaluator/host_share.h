// These functions let an evaluator leave the cores and GPUs of its host to training members on the
// same host.
#pragma once

#include <string>

#include "common/cluster/cluster_spec.h"

namespace muster::evaluator {

// Returns true if the address of a chief, worker or ps of the cluster is on this host. Resolves
// host names, so it may block for long if there are many or if the resolver does not answer.
bool SharesHost(const ClusterSpec& cluster);

// Returns the devices of an evaluator. `devices` is the job's setting, and `visible` is
// CUDA_VISIBLE_DEVICES or null. An evaluator that shares its host gets "cpu" if `devices` is
// "auto", because the members use the GPUs. It also gets "cpu" if `visible` is empty, as under
// `muster launch`. Otherwise the result is `devices`.
std::string EvaluatorDevices(const std::string& devices, bool shares_host, const char* visible);

// Lowers the priority of the calling thread and of all threads that it starts later.
void LowerPriority();

}  // namespace muster::evaluator
