// Distinguishes the errors of damaged examples from other errors. If the job's key "on_error" is
// "skip", training omits damaged examples. Internal to this folder.
#pragma once

#include <string>

#include "muster/status.h"

namespace muster::data {

// Returns the DataError "'<path>' cannot be <done>: <text of errno>." `done` is a participle such
// as "read". IsDamage returns false for the result if the cause would affect other files too: the
// process lacks descriptors, memory or permission, or a file server does not answer.
absl::Status FileError(const std::string& path, const char* done, int error_number);

// Returns true if the error means that an example is damaged. Returns false if the status is OK.
bool IsDamage(const absl::Status& status);

}  // namespace muster::data
