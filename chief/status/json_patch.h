// JSON Merge Patch (RFC 7396): what changes between two states, for readers that apply it.
#pragma once

#include "muster/json.h"

namespace muster::chief {

// Returns the patch that makes `to` of `from`. Returns an empty object if nothing differs. A value
// that is null counts as missing, as the RFC says. REQUIRES: both are objects.
Json MergePatchOf(const Json& from, const Json& to);

}  // namespace muster::chief
