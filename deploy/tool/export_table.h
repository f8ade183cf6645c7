// Exports one embedding table of a checkpoint to a file that numpy or safetensors can read.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "muster/status.h"

namespace muster {

// Writes the embedding table `table` to `output`, with rows in ascending order of keys. The ending
// of `output` selects the format. A file NAME.safetensors has the tensors "keys", int64 [n], and
// "rows", [n, width]. The file's metadata has the table's name and the step. If `output` is
// NAME.npy, that file has the rows, and NAME.keys.npy has the keys. Files appear when complete.
// Returns ConfigurationError if the table is missing or a file cannot be written.
absl::Status ExportTable(const checkpoint::Snapshot& snapshot, const std::string& table,
                         const std::string& output);

}  // namespace muster
