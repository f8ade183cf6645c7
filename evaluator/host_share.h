// An evaluator that shares its host with training members leaves the cores to them.
#pragma once

#include <string>

#include "common/cluster/cluster_spec.h"

namespace muster {

// True if the address of a chief, worker or ps of the cluster is on this host. Resolves names,
// which takes long if there are many or the resolver does not answer.
bool SharesHost(const ClusterSpec& cluster);

// Returns the devices of an evaluator, where `devices` are the job's. `visible` is
// CUDA_VISIBLE_DEVICES and may be null. An evaluator that shares its host with training members
// gets the CPU in two cases: `devices` is "auto", because the members use the GPUs, or `visible` is
// empty, as under `muster launch`. Otherwise the result is `devices`.
std::string EvaluatorDevices(const std::string& devices, bool shares_host, const char* visible);

// Lowers the priority of this thread, and of threads that it starts later.
void LowerPriority();

}  // namespace muster
