// Exports one embedding table of a checkpoint to a file that numpy or safetensors can read.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "muster/status.h"

namespace muster {

// Rows are sorted by key, ascending. FILE.safetensors contains "keys", int64 [n], and "rows", [n,
// width], with the table's name and the step as metadata. FILE.npy contains the rows, and
// FILE.keys.npy the keys. Each file appears by one rename. Returns a ConfigurationError if
// something is missing or cannot be written.
absl::Status ExportTable(const checkpoint::Snapshot& snapshot, const std::string& table,
                         const std::string& output);

}  // namespace muster
