// An evaluator that shares its host with training members leaves the cores to them.
#pragma once

#include <string>

#include "common/cluster/cluster_spec.h"

namespace muster {

// True if the address of a chief, worker or ps of the cluster is on this host. Resolves names,
// which takes long if there are many or the resolver does not answer.
bool SharesHost(const ClusterSpec& cluster);

// Returns the devices of an evaluator of a job with `devices`. On a host shared with training
// members it is the CPU in two cases. The job's devices are "auto", and then the members use the
// GPUs. Or `visible` is empty, and then the evaluator sees no GPU, as under `muster launch`.
// Otherwise it is `devices`. `visible` is CUDA_VISIBLE_DEVICES and may be null.
std::string EvaluatorDevices(const std::string& devices, bool shares_host, const char* visible);

// Lowers the priority of this thread, and of threads that it starts later.
void LowerPriority();

}  // namespace muster
