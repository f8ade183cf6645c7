// Weights that a run begins with (the job's "load", builder.load): from safetensors files into the
// models of the chief's replica, from which all others are given theirs.
#pragma once

#include <set>
#include <string>

#include "common/checkpoint/file_system.h"
#include "common/train/replica.h"

namespace muster {

// What the job and the program name; the job's of a model replace the program's.
absl::StatusOr<std::vector<LoadSpec>> LoadsOf(const Job& job, const Replica& replica);

// Reads it, and says in the log what was loaded. Where it fails the models may have changed.
// ConfigurationErrors name a model or a file that is not there, tensors that are missing, left over
// or of another shape; DataErrors a damaged file.
// `filled`, if any: the names of parameters and buffers that were, "<model>.<name>".
absl::Status LoadWeights(checkpoint::FileSystem& files, const Job& job, Replica* replica,
                         std::set<std::string>* filled = nullptr);

}  // namespace muster
