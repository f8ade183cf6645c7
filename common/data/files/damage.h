// Tells which errors of a dataset mean that an example is damaged, so that on_error "skip" may
// leave it out. Internal to this folder.
#pragma once

#include <string>

#include "muster/status.h"

namespace muster::data {

// Returns the DataError "'<path>' cannot be <done>: <text of errno>.". It does not count as damage
// in three cases: the process lacks descriptors or memory, it may not read the file, or its server
// does not answer. Such an error would hit every other file too.
absl::Status FileError(const std::string& path, const char* done, int error_number);

// True where the error means that an example is damaged and may be left out. False where the status
// is OK.
bool IsDamage(const absl::Status& status);

}  // namespace muster::data
