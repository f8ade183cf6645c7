// Loads the initial weights of a run from safetensors files into the models of the chief's replica.
// The job's "load" and the program's builder.load name the files. All other replicas receive the
// weights from the chief's replica.
#pragma once

#include <set>
#include <string>

#include "common/checkpoint/files/file_system.h"
#include "common/train/replica/replica.h"

namespace muster {

// Returns the weights that the job and the program name. For a model that both name, returns those
// of the job.
absl::StatusOr<std::vector<LoadSpec>> LoadsOf(const Job& job, const Replica& replica);

// Loads the weights and logs what was loaded. If `filled` is not null, adds the names of the loaded
// parameters and buffers to it, as "<model>.<name>". Returns a ConfigurationError for a missing
// model or file, and for a tensor of another shape or type. If LoadSpec::strict is set, missing
// tensors and left-over tensors are errors too. Returns a DataError for a damaged file. After an
// error the models may have changed.
absl::Status LoadWeights(checkpoint::FileSystem& files, const Job& job, Replica* replica,
                         std::set<std::string>* filled = nullptr);

}  // namespace muster
