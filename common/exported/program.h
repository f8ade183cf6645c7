// The job's {"exported": "model.pt2", "loss": ..., "metrics": [...]}: a program without C++.
#pragma once

#include "muster/json.h"
#include "muster/program.h"
#include "muster/status.h"

namespace muster::exported {

// True where the job's "program" is an exported one.
bool IsExported(const Json& program);

// Reads the file, compiles its graph and checks the loss and the metrics, so that errors are found
// before anything starts. Each replica's program has its own copy of the weights.
absl::StatusOr<ProgramFactory> MakeExportedProgram(const Json& program);

}  // namespace muster::exported
