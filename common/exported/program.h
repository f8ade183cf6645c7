// Makes a Program from a file that torch.export.save wrote. The job's "program" is an object such
// as {"exported": "model.pt2", "loss": ..., "metrics": [...]}.
#pragma once

#include "muster/json.h"
#include "muster/program.h"
#include "muster/status.h"

namespace muster::exported {

// Returns true if `program`, the job's "program", is an object with the key "exported".
bool IsExported(const Json& program);

// Reads the file, compiles its graph, and checks loss and metrics, so that the caller gets these
// errors before training. Each program that the factory makes has its own copy of the weights.
absl::StatusOr<ProgramFactory> MakeExportedProgram(const Json& program);

}  // namespace muster::exported
