// The byte-level seam under a data connection: plain TCP, or TLS over it (tls_stream.h). Calls
// never block. One thread reads and writes; Shutdown may be called from any thread.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <optional>
#include <span>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::transport {

class ByteStream {
 public:
  virtual ~ByteStream() = default;  // Closes the socket.
  // Bytes moved; 0 when it would block. PeerLost when the other side has closed or reset.
  virtual absl::StatusOr<size_t> Read(std::span<const iovec> into) = 0;
  // What is not moved may be under way already: the next Write begins with it, wherever it lies
  // then, and gives no less.
  virtual absl::StatusOr<size_t> Write(std::span<const iovec> from) = 0;
  // What to poll the socket for before the next Read or Write can move something (a TLS read may
  // have to write).
  virtual short PollEvents(bool want_read, bool want_write) const = 0;
  // Read may have something to give, or to say, for which the socket is not to be waited for.
  virtual bool Buffered() const { return false; }
  virtual int fd() const = 0;
  // Bytes, or a probe, are under way to the other host: how long ago it last acknowledged
  // anything. That is its kernel's business: a process that is busy, or stopped, does not matter.
  virtual std::optional<Duration> Unacknowledged() const { return std::nullopt; }
  virtual void Shutdown() = 0;
};

// Takes over a connected socket: makes it non-blocking, without Nagle's delay. Where there is no
// memory for that, it is closed.
std::unique_ptr<ByteStream> MakeTcpStream(int fd);

}  // namespace muster::transport
