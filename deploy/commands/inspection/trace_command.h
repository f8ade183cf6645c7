// `muster trace MODEL_DIR|ADDRESS [--steps N] [-o FILE]`. Writes a file for the trace viewer
// Perfetto. The file shows the timed activities of all threads of all tasks during a few steps. See
// docs/trace.md. Exit code 2: there is nothing to trace. Exit code 138: the chief was not reached,
// or no task sent spans (timed activities of a thread).
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeTraceCommand();

}  // namespace muster
