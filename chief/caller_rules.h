// Which task may call what of the chief's server, where tasks prove who they are.
#pragma once

#include <string_view>

#include "common/security/stream_security.h"

namespace muster {

// `method`: "/muster.proto.Coordinator/Session". That a caller speaks for no other task is the
// handlers' to check.
bool MayCallChief(const security::Peer& caller, std::string_view method);

}  // namespace muster
