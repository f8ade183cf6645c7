// A checkpoint of an exported program as a file for torch.export.load.
#pragma once

#include <string>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::exported {

// `checkpoint` is a model_dir, its checkpoints folder (the newest whole one is taken), or one
// checkpoint. `program` is the job's "program"; null: that of the job that the checkpoint was
// written by. Returns the path of the checkpoint that was taken.
absl::StatusOr<std::string> ExportCheckpoint(const std::string& checkpoint, Json program,
                                             const std::string& output);

}  // namespace muster::exported
