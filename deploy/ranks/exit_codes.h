// Reports the exit codes of ranks to a script that runs a launcher such as srun or mpirun. The
// launcher starts one process per rank, and returns a single exit code for all of them. But the
// exit code of the job is that of the chief, rank 0.
#pragma once

#include <optional>
#include <string>

namespace muster::ranks {

// Writes the code of rank 0 to the file `folder`/chief. Also writes a code from 1 to 127 to the
// file `folder`/permanent, for any rank and for a process without a rank (nullopt). The script must
// not restart the job if `folder`/permanent exists, because the job would fail in the same way. If
// a file cannot be written, prints an error to stderr.
void WriteExitCode(const std::string& folder, std::optional<int> rank, int code);

}  // namespace muster::ranks
