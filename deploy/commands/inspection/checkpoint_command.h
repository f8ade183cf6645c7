// `muster checkpoint inspect DIR [--tensors] [--json] [--no-verify]`. If DIR is a model_dir (the
// folder of a run's output) or its checkpoints folder, lists all checkpoints with steps and sizes,
// and marks the latest and the best checkpoint. If DIR is a single checkpoint, describes this
// checkpoint. Verifies all checksums. Exit code 2: no checkpoint was found. Exit code 3: a
// checkpoint is damaged.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeCheckpointCommand();

}  // namespace muster
