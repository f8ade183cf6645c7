// The byte stream under a data connection: plain TCP, or TLS over TCP (tls_stream.h). Calls never
// block. One thread at a time uses a stream, but any thread may call Shutdown.
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
  // Return the number of bytes moved, 0 if the call would block. Return PeerLost if the other side
  // has closed or reset the connection.
  virtual absl::StatusOr<size_t> Read(std::span<const iovec> into) = 0;
  // After a partial Write, the next Write must begin with all bytes that were not moved, because
  // the stream may already have encrypted them. They may be at another memory address.
  virtual absl::StatusOr<size_t> Write(std::span<const iovec> from) = 0;
  // Returns the poll events of the socket to wait for before the next Read or Write. A TLS read may
  // need to wait for POLLOUT.
  virtual short PollEvents(bool want_read, bool want_write) const = 0;
  // Returns whether Read may return data or an error at once, before the socket is readable.
  virtual bool Buffered() const { return false; }
  virtual int fd() const = 0;
  // Returns the time since the other host last acknowledged anything, if data or a probe to it is
  // unacknowledged. Otherwise returns nullopt. The other host's kernel sends acknowledgements, even
  // if its process is busy or stopped.
  virtual std::optional<Duration> Unacknowledged() const { return std::nullopt; }
  // Ends the stream in both directions.
  virtual void Shutdown() = 0;
};

// Takes ownership of a connected socket, makes it non-blocking and sets TCP_NODELAY. Closes the
// socket if no memory is left.
std::unique_ptr<ByteStream> MakeTcpStream(int fd);

}  // namespace muster::transport
