// One embedding table of a checkpoint as a file that numpy or safetensors reads.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "muster/status.h"

namespace muster {

// By key, ascending. FILE.safetensors gets "keys", int64 [n], and "rows", [n, width], with the
// table's name and the step as metadata; FILE.npy gets the rows, and FILE.keys.npy the keys. Each
// file appears by one rename. ConfigurationErrors say what is not there or cannot be written.
absl::Status ExportTable(const checkpoint::Snapshot& snapshot, const std::string& table,
                         const std::string& output);

}  // namespace muster
