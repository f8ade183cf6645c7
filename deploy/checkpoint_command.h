// `muster checkpoint inspect DIR [--tensors] [--json] [--no-verify]`. Lists the checkpoints of a
// model_dir or of its checkpoints folder, or inspects a single checkpoint. Shows steps, sizes, and
// which checkpoint is the latest and which the best. Verifies all checksums. Exit code 2: there is
// no checkpoint. 3: a checkpoint is damaged.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeCheckpointCommand();

}  // namespace muster
