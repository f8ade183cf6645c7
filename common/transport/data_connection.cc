#include "common/transport/data_connection.h"

namespace muster::transport {

absl::Status DataConnection::Exchange(std::span<const std::byte> send, std::span<std::byte> receive,
                                      MonotonicTime deadline, const AbortSignal& abort) {
  while (!send.empty() || !receive.empty()) {
    bool moved = false;
    if (!send.empty()) {
      const iovec from{const_cast<std::byte*>(send.data()), send.size()};
      MUSTER_ASSIGN_OR_RETURN(const size_t n, TryWrite({&from, 1}));
      send = send.subspan(n);
      moved |= n > 0;
    }
    if (!receive.empty()) {
      const iovec into{receive.data(), receive.size()};
      MUSTER_ASSIGN_OR_RETURN(const size_t n, TryRead({&into, 1}));
      receive = receive.subspan(n);
      moved |= n > 0;
    }
    if (abort.is_set()) return Superseded("the wait was aborted");
    if (moved) continue;
    Interest interest{this, !receive.empty(), !send.empty()};
    switch (WaitReady({&interest, 1}, deadline, abort)) {
      case WaitResult::kReady:
        break;
      case WaitResult::kDeadline:
        return DeadlinePassed("the other side did not answer in time");
      case WaitResult::kAborted:
        return Superseded("the wait was aborted");
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::transport
