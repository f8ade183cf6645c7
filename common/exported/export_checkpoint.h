// Writes a checkpoint of an exported program to a file for torch.export.load.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::exported {

// `program` is the job's "program". If `program` is null, the "program" of the checkpoint's job
// replaces it.
absl::Status ExportCheckpoint(const checkpoint::Snapshot& snapshot, Json program,
                              const std::string& output);

}  // namespace muster::exported
