// Decides which task may call which method of the chief's server. Applies where tasks prove their
// identity.
#pragma once

#include <string_view>

#include "common/security/stream_security.h"

namespace muster {

// `method` has the form "/muster.proto.Coordinator/Session". The handlers check that a caller does
// not speak for another task.
bool MayCallChief(const security::Peer& caller, std::string_view method);

}  // namespace muster
