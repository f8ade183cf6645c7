// Non-blocking sockets with deadlines, for the connections of `muster preflight`. Thread-safe.
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

// Returns the time until `until` for poll, in milliseconds: at least 0, at most a minute.
int MillisecondsUntil(MonotonicTime until);
// Blocks until one of the poll events `events` occurs. Returns false if `until` passes first.
bool WaitFor(int fd, short events, MonotonicTime until);

// Sends all bytes. Returns false after an error or at the deadline.
bool SendText(int fd, const std::string& text, MonotonicTime until);
// Receives one line, with its newline. Returns "" after an error, at the deadline, or if the line
// is longer than kMaxLine. The other side must send nothing after the line.
std::string ReceiveLine(int fd, MonotonicTime until);

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
// Resolves "host:port". Returns PeerLost if the name does not resolve.
absl::StatusOr<AddressList> Resolve(const std::string& address, int socktype, int flags);
// Segments of this size pass every path, even one that silently drops longer packets.
inline constexpr int kSmallSegment = 500;
struct ConnectOptions {
  std::string own_host;             // A numeric address of this host. Empty: the kernel chooses.
  int max_segment = kSmallSegment;  // The TCP MSS, in both directions.
};
// Connects to one resolved address. Returns PeerLost with the reason if that fails.
absl::StatusOr<Fd> ConnectTo(const addrinfo& address, const ConnectOptions& options,
                             MonotonicTime until);
// Binds a new socket of type `socktype` to `host`, a numeric address, and a port that the kernel
// chooses. Sets `*port`. Listens if it is a stream socket.
absl::StatusOr<Fd> BindTo(const std::string& host, int socktype, int* port);

}  // namespace muster::preflight
