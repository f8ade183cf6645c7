// `muster checkpoint inspect DIR [--tensors] [--json] [--no-verify]`: the checkpoints of a
// model_dir or of its checkpoints folder, or a single one: steps, sizes, which is the latest and
// the best, and whether every byte of them is as it was written. Exit code 2: there is none, 3: one
// is damaged.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeCheckpointCommand();

}  // namespace muster
