// Decides which task may call which method of the chief's gRPC server. Used only with TLS, because
// without TLS a caller does not prove which task it is.
#pragma once

#include <string_view>

#include "common/security/stream_security.h"

namespace muster::chief {

// `method` has the form "/muster.proto.Coordinator/Session". In addition to this check, the handler
// of the method checks that the task named in the request is the caller.
bool MayCallChief(const security::Peer& caller, std::string_view method);

}  // namespace muster::chief
