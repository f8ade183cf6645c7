// `muster checkpoint inspect DIR [--tensors] [--json] [--no-verify]`. Lists the checkpoints of a
// model_dir or of its checkpoints folder, or inspects a single checkpoint. Shows steps and sizes,
// and marks the latest and the best checkpoint. Verifies all checksums. Exit code 2: no checkpoint
// was found. 3: a checkpoint is damaged.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeCheckpointCommand();

}  // namespace muster
