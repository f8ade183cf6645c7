// Writes a checkpoint of an exported program as a file for torch.export.load.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::exported {

// `program` is the job's "program". If it is null, the job in the checkpoint determines it.
absl::Status ExportCheckpoint(const checkpoint::Snapshot& snapshot, Json program,
                              const std::string& output);

}  // namespace muster::exported
