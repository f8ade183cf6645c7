// Writes a checkpoint of an exported program to a file for torch.export.load.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::exported {

// Writes the file `output`. `program` is the job's "program", which names the exported file. If
// `program` is null, uses the "program" of the job in the checkpoint. Returns a ConfigurationError
// if the used "program" is not an exported program.
absl::Status ExportCheckpoint(const checkpoint::Snapshot& snapshot, Json program,
                              const std::string& output);

}  // namespace muster::exported
