// Functions for a job whose "program" is a file. For a plugin (a shared library), "program" is a
// path that has a slash or ends in ".so". For a file that torch.export.save wrote, "program" is an
// object {"exported": PATH, ...}. Needs no LibTorch.
#pragma once

#include <string>

#include "muster/json.h"
#include "muster/status.h"

namespace muster {

// Returns the path of the file. Returns "" if `program` does not name a file, for example if it is
// the name of a built-in program.
std::string ProgramFile(const Json& program);
// Returns `program` with another path. REQUIRES: ProgramFile(program) is not empty.
Json WithProgramFile(Json program, const std::string& path);
// Replaces a relative path in `program` by its path in `folder`.
void ResolveProgramFile(const std::string& folder, Json* program);
// Returns `program` with only the file name of its path. Hosts may keep the file in different
// folders. Two jobs can belong to the same run only if PortableProgram returns the same value for
// both jobs.
Json PortableProgram(Json program);

// Sets digests["program"] to the digest of the file, if the program is a file. Returns a
// ConfigurationError if the file cannot be read.
absl::Status AddProgramDigest(const Json& program, Json* digests);

}  // namespace muster
