// Computes JSON Merge Patches (RFC 7396).
#pragma once

#include "muster/json.h"

namespace muster::chief {

// Returns the patch that turns `from` into `to`. Returns an empty object if they are equal. As in
// the RFC, a member with the value null counts as missing. REQUIRES: `from` and `to` are objects.
Json MergePatchOf(const Json& from, const Json& to);

}  // namespace muster::chief
