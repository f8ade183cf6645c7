// Computes JSON Merge Patches (RFC 7396).
#pragma once

#include "muster/json.h"

namespace muster::chief {

// Returns the patch that turns `from` into `to`, an empty object if they are equal. A null value
// counts as missing, as in the RFC. REQUIRES: both are objects.
Json MergePatchOf(const Json& from, const Json& to);

}  // namespace muster::chief
