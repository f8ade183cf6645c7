// An evaluator that shares its host with members of the training leaves the cores to them.
#pragma once

#include <string>

#include "common/cluster/cluster_spec.h"

namespace muster {

// Whether a chief, worker or ps of the cluster has its address on this host. Looks names up, which
// takes a while where there are many or none answers.
bool SharesHost(const ClusterSpec& cluster);

// What an evaluator computes on where the job's devices are `devices`: the CPU where the GPUs of
// its host are the members', and where it may see none (`visible`: CUDA_VISIBLE_DEVICES, may be
// null), as under `muster launch`.
std::string EvaluatorDevices(const std::string& devices, bool shares_host, const char* visible);

// This thread, and those that it starts from now on, get what the others leave of the cores.
void LowerPriority();

}  // namespace muster
