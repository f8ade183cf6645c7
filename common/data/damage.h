// Which errors of a dataset are an example's own, so that on_error "skip" may leave it out.
// Internal to this folder.
#pragma once

#include <string>

#include "muster/status.h"

namespace muster::data {

// "'<path>' cannot be <done>: <what errno says>.", a DataError. Where the process has no more open
// files or memory, or may not read the file, or its server does not answer, that is no damage of
// the file: any other one would be left out as well.
absl::Status FileError(const std::string& path, const char* done, int error_number);

// Whether an example is damaged, so that it may be left out; false where the status is OK.
bool IsDamage(const absl::Status& status);

}  // namespace muster::data
