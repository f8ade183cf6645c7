// Loads the initial weights of a run (the job's "load", builder.load) from safetensors files into
// the models of the chief's replica. All other replicas receive them from there.
#pragma once

#include <set>
#include <string>

#include "common/checkpoint/files/file_system.h"
#include "common/train/replica/replica.h"

namespace muster {

// Returns the weights that the job and the program name. For one model, the job's replace the
// program's.
absl::StatusOr<std::vector<LoadSpec>> LoadsOf(const Job& job, const Replica& replica);

// Loads the weights and logs what was loaded. After an error the models may have changed. A
// ConfigurationError names a missing model or file, or tensors that are missing, left over or of
// another shape. A DataError reports a damaged file. `filled`, if not null, receives the names of
// the filled parameters and buffers, "<model>.<name>".
absl::Status LoadWeights(checkpoint::FileSystem& files, const Job& job, Replica* replica,
                         std::set<std::string>* filled = nullptr);

}  // namespace muster
