// Exports one embedding table of a checkpoint to a file that numpy or safetensors can read.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "muster/status.h"

namespace muster {

// Writes the table to `output`, with rows in ascending order of keys. A .safetensors file contains
// "keys", int64 [n], and "rows", [n, width], and has the table's name and the step as metadata.
// FILE.npy contains the rows, and FILE.keys.npy the keys. Each file is renamed into place when
// complete. Returns ConfigurationError if the table is missing or a file cannot be written.
absl::Status ExportTable(const checkpoint::Snapshot& snapshot, const std::string& table,
                         const std::string& output);

}  // namespace muster
