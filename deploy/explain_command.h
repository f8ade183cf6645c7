// `muster explain DIR [--generation N] [--json]`. Explains the flight records of a generation in
// plain sentences. See docs/explain.md. Exit code 2: no records were found. 3: some records are
// damaged; all others are explained.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeExplainCommand();

}  // namespace muster
