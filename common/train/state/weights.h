// Loads the initial weights of a run from safetensors files into the models of the chief's replica.
// A replica is one device's copy of the model. The job's "load" and the program's calls of
// Builder::load name the files. All other replicas receive the weights from the chief's replica.
#pragma once

#include <set>
#include <string>

#include "common/checkpoint/files/file_system.h"
#include "common/train/replica/replica.h"

namespace muster {

// Returns the files of weights that the job and the program name. If both name a file for a model,
// the job's file is used.
absl::StatusOr<std::vector<LoadSpec>> LoadsOf(const Job& job, const Replica& replica);

// Loads the files that LoadsOf returns, and logs a line for each model. If `filled` is not null,
// adds the names "<model>.<name>" of the loaded parameters and buffers to `*filled`. Returns a
// ConfigurationError for a missing model or file, and for a tensor of another shape or type. With
// LoadSpec::strict, also returns a ConfigurationError if the file lacks a tensor of the model, or
// if the model lacks a tensor of the file. Returns a DataError for a damaged file. After an error,
// the models may have changed.
absl::Status LoadWeights(checkpoint::FileSystem& files, const Job& job, Replica* replica,
                         std::set<std::string>* filled = nullptr);

}  // namespace muster
