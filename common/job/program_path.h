// A job's "program" that names a file: a plugin by its path (it has a slash or ends in ".so"), or
// {"exported": PATH, ...}. Needs no LibTorch.
#pragma once

#include <string>

#include "muster/json.h"
#include "muster/status.h"

namespace muster {

// Returns the file, or "" if the program is built in or not recognised.
std::string ProgramFile(const Json& program);
// Returns the same program with another path. Requires ProgramFile(program) to be non-empty.
Json WithProgramFile(Json program, const std::string& path);
// Resolves a relative path against `folder`.
void ResolveProgramFile(const std::string& folder, Json* program);
// Returns the program with the folders removed from its path. Two jobs belong to the same run only
// if this value is equal, wherever the files are.
Json PortableProgram(Json program);

// Sets digests["program"] if the program is a file. Returns a ConfigurationError if it cannot be
// read.
absl::Status AddProgramDigest(const Json& program, Json* digests);

}  // namespace muster
