// Makes a Program from a file of torch.export.save. The job's "program" is then {"exported":
// "model.pt2", "loss": ..., "metrics": [...]}.
#pragma once

#include "muster/json.h"
#include "muster/program.h"
#include "muster/status.h"

namespace muster::exported {

// Returns true if the job's "program" is an exported program.
bool IsExported(const Json& program);

// Reads the file, compiles its graph, and checks loss and metrics, so that errors appear before
// training starts. Each program that the factory makes has its own copy of the weights.
absl::StatusOr<ProgramFactory> MakeExportedProgram(const Json& program);

}  // namespace muster::exported
