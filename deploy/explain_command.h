// `muster explain DIR [--generation N] [--json]`: what the flight records of a generation tell, in
// plain sentences: docs/explain.md. Exit code 2: there are none, 3: some are damaged (the others
// are told all the same).
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeExplainCommand();

}  // namespace muster
