#include "common/rpc/library.h"

#include <grpc/grpc.h>

namespace muster::rpc {

void KeepGrpc() { [[maybe_unused]] static const bool once = (grpc_init(), true); }

}  // namespace muster::rpc
