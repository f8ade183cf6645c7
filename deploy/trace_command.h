// `muster trace MODEL_DIR|ADDRESS [--steps N] [-o FILE]`. Writes what each thread of each task did
// during a few steps, as a file for Perfetto. See docs/trace.md. Exit code 2: there is nothing to
// trace. 138: the chief was not reached, or no task delivered spans.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeTraceCommand();

}  // namespace muster
