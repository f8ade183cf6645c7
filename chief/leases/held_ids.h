// HoldsId looks up an id in NextRequest::held, the ids of the work that a worker holds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "proto/parameter_server.pb.h"

namespace muster::chief {

// Returns whether the worker that sent `request` holds the work with this id: a training lease
// (lease_table.h) or a part of a pass (evaluation_pass.h).
inline bool HoldsId(const proto::NextRequest& request, int64_t id) {
  return std::find(request.held().begin(), request.held().end(), id) != request.held().end();
}

}  // namespace muster::chief
