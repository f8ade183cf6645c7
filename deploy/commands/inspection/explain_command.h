// `muster explain DIR [--generation N] [--json]`. Explains in plain sentences why a generation
// ended, from its flight records. A generation is a period of training with fixed members. A flight
// record is the history of one process's recent activity. See docs/explain.md. Exit code 2: no
// records were found. Exit code 3: some records are damaged. The command prints an error for each
// damaged record and uses all other records.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeExplainCommand();

}  // namespace muster
