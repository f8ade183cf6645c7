// Reports the exit codes of ranks to a script that runs a launcher. A launcher returns a single
// code for all ranks, but only the chief's code is the job's verdict.
#pragma once

#include <optional>
#include <string>

namespace muster::ranks {

// Writes the code of rank 0 to `folder`/chief. Writes a code from 1 to 127, of any rank or of a
// process without a rank, to `folder`/permanent: a restart of the job would fail in the same way,
// even if the chief has only lost a peer. Prints an error to stderr if it cannot write.
void WriteExitCode(const std::string& folder, std::optional<int> rank, int code);

}  // namespace muster::ranks
