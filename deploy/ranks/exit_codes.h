// What a script around a launcher learns of its ranks: a launcher returns one code for all of them,
// and the chief alone decides whether a job is done.
#pragma once

#include <optional>
#include <string>

namespace muster::ranks {

// Writes the code of rank 0 to `folder`/chief. Writes a code from 1 to 127 of any rank, or of a
// process that has no rank, to `folder`/permanent: another start of the job would end in the same
// way, also where the chief has only lost a peer. Says on stderr that it cannot.
void WriteExitCode(const std::string& folder, std::optional<int> rank, int code);

}  // namespace muster::ranks
