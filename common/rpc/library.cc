#include "common/rpc/library.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include "common/base/logging.h"
#include "common/base/peer_text.h"

namespace muster::rpc {
namespace {

// Receives gRPC's log lines, which would go to stderr, some for each unproven connection. The
// acceptor and the status of each call already report what users need.
void TakeLine(gpr_log_func_args* line) { LogDebug("gRPC: {}", SanitizePeerText(line->message)); }

}  // namespace

void RetainGrpc() {
  [[maybe_unused]] static const bool once = [] {
    gpr_set_log_function(TakeLine);
    grpc_init();
    return true;
  }();
}

}  // namespace muster::rpc
