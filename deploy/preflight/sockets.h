// Functions for non-blocking sockets with deadlines, for the connections of `muster preflight`.
// Thread-safe. `until` is the deadline of a call.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/files/fd.h"
#include "muster/status.h"

namespace muster::preflight {

inline constexpr size_t kMaxLine = 64 * 1024;

// Returns the time from now to `until` in milliseconds, as the timeout for poll(). The result is at
// least 0 and at most one minute.
int MillisecondsUntil(MonotonicTime until);
// Blocks until `fd` has one of the events `events` of poll(), and returns true. Returns false if
// `until` passes first.
bool WaitFor(int fd, short events, MonotonicTime until);

// Sends all bytes and returns true. Returns false on an error or at the deadline.
bool SendText(int fd, const std::string& text, MonotonicTime until);
// Receives one line and returns it with its newline. Returns "" on an error, at the deadline, or if
// the line is longer than kMaxLine. REQUIRES: the other side sends nothing after the line.
std::string ReceiveLine(int fd, MonotonicTime until);

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
// Resolves `address`, "host:port". `socktype` and `flags` are those of getaddrinfo(). Returns
// PeerLost if the name does not resolve.
absl::StatusOr<AddressList> Resolve(const std::string& address, int socktype, int flags);
// TCP segments of this size, in bytes, pass even a network path that silently drops large packets.
inline constexpr int kSmallSegment = 500;
struct ConnectOptions {
  std::string own_host;             // The local address, numeric. Empty: the kernel chooses.
  int max_segment = kSmallSegment;  // The TCP MSS, in both directions.
};
// Connects to one resolved address. On failure, returns PeerLost with the reason.
absl::StatusOr<Fd> ConnectTo(const addrinfo& address, const ConnectOptions& options,
                             MonotonicTime until);
// Binds a new socket of type `socktype` to `host`, a numeric address, and a port that the kernel
// chooses. Sets `*port` to this port. A stream socket listens.
absl::StatusOr<Fd> BindTo(const std::string& host, int socktype, int* port);

}  // namespace muster::preflight
