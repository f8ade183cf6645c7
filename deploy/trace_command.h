// `muster trace MODEL_DIR|ADDRESS [--steps N] [-o FILE]`. Writes a file for Perfetto with the spans
// of each thread of each task during a few steps. See docs/trace.md. Exit code 2: there is nothing
// to trace. 138: the chief was not reached, or no task delivered spans.
#pragma once

#include <memory>

#include "deploy/command.h"

namespace muster {

std::unique_ptr<Command> MakeTraceCommand();

}  // namespace muster
