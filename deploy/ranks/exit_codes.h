// Reports the exit codes of ranks to a script that runs a launcher such as srun or mpirun. The
// launcher starts one process per rank, and returns a single exit code for all processes. But the
// exit code of the job is the exit code of rank 0, the chief.
#pragma once

#include <optional>
#include <string>

namespace muster::ranks {

// If `rank` is 0, writes `code` to the file `folder`/chief. If `code` is from 1 to 127, also writes
// `code` to the file `folder`/permanent. This second file is written for any rank, and also for a
// process without a rank (nullopt). If `folder`/permanent exists, the script must not restart the
// job, because the job would fail in the same way. If a file cannot be written, prints an error to
// stderr.
void WriteExitCode(const std::string& folder, std::optional<int> rank, int code);

}  // namespace muster::ranks
