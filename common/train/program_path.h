// A job's "program" where it names a file: a plugin by its path (it has a slash or ends in ".so"),
// or {"exported": PATH, ...}. Needs no LibTorch.
#pragma once

#include <string>

#include "muster/json.h"
#include "muster/status.h"

namespace muster {

// The file; "" where the program is built in, or is nothing known.
std::string ProgramFile(const Json& program);
// The same program with another path. REQUIRES: ProgramFile(program) is not empty.
Json WithProgramFile(Json program, const std::string& path);
// Makes a relative path one from `folder`.
void ResolveProgramFile(const std::string& folder, Json* program);
// What a run stays the same by, wherever its files lie: the path without its folders.
Json PortableProgram(Json program);

// Sets digests["program"] of a job whose program is a file. One that cannot be read is a
// ConfigurationError.
absl::Status AddProgramDigest(const Json& program, Json* digests);

}  // namespace muster
