// Decides which task may call which method of the chief's server. Used if tasks prove their
// identity, by TLS.
#pragma once

#include <string_view>

#include "common/security/stream_security.h"

namespace muster::chief {

// `method` has the form "/muster.proto.Coordinator/Session". The method's handler also checks that
// the caller does not claim to be another task.
bool MayCallChief(const security::Peer& caller, std::string_view method);

}  // namespace muster::chief
