#include "common/rpc/library.h"

#include <fmt/format.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include <string_view>

#include "common/base/logging.h"
#include "common/base/peer_text.h"

namespace muster::rpc {
namespace {

// gRPC writes to stderr by itself, and for each connection of a stranger. Of all that, people have
// to know that somebody came without the right key; the rest is for whoever debugs.
void TakeLine(gpr_log_func_args* line) {
  static LineBudget budget(3, std::chrono::seconds(30));
  const std::string_view message = line->message;
  if (!message.starts_with("Handshake failed")) return LogDebug("gRPC: {}", PeerText(message));
  const size_t reason = message.rfind(':');
  int64_t left_out = 0;
  if (!budget.Take(&left_out)) return;
  LogWarning("refused a connection whose TLS handshake failed:{}{}",
             PeerText(message.substr(reason == std::string_view::npos ? 0 : reason + 1)),
             left_out > 0 ? fmt::format(" ({} more before)", left_out) : "");
}

}  // namespace

void KeepGrpc() {
  [[maybe_unused]] static const bool once = [] {
    gpr_set_log_function(TakeLine);
    grpc_init();
    return true;
  }();
}

}  // namespace muster::rpc
