// Functions for a job whose "program" is a file. The value is either the path of a plugin, which
// has a slash or ends in ".so", or {"exported": PATH, ...}. Needs no LibTorch.
#pragma once

#include <string>

#include "muster/json.h"
#include "muster/status.h"

namespace muster {

// Returns the path of the file, or "" if the program is built in or not recognized.
std::string ProgramFile(const Json& program);
// Returns `program` with another path. REQUIRES: ProgramFile(program) is not empty.
Json WithProgramFile(Json program, const std::string& path);
// Resolves a relative path in `program` against `folder`.
void ResolveProgramFile(const std::string& folder, Json* program);
// Returns `program` with the folders removed from its path. Two jobs can only belong to the same
// run if this value is equal, because hosts may keep the file in different folders.
Json PortableProgram(Json program);

// Sets digests["program"] if the program is a file. Returns a ConfigurationError if it cannot be
// read.
absl::Status AddProgramDigest(const Json& program, Json* digests);

}  // namespace muster
