// `muster checkpoint inspect DIR [--tensors] [--json] [--no-verify]`. Lists the checkpoints of a
// model_dir or of its checkpoints folder, or inspects a single one. It shows steps, sizes, and
// which checkpoint is the latest and the best, and verifies that every byte is intact. Exit code 2:
// there is none. 3: one is damaged.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeCheckpointCommand();

}  // namespace muster
