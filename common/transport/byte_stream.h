// The byte stream that a data connection uses: plain TCP, or TLS over TCP (tls_stream.h). Calls do
// not block. Only one thread at a time may use a stream, but any thread may call Shutdown.
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
  // Read and Write return the number of bytes that they have moved, or 0 if they would block. They
  // return PeerLost if the other side has closed or reset the connection.
  virtual absl::StatusOr<size_t> Read(std::span<const iovec> into) = 0;
  // After a partial Write, the next Write must begin with the bytes that were not written, because
  // the stream may already have encrypted these bytes. Their memory address may differ.
  virtual absl::StatusOr<size_t> Write(std::span<const iovec> from) = 0;
  // Returns the events that the caller must poll the socket for before the next Read or Write.
  // Before a Read with TLS, the events may include POLLOUT.
  virtual short PollEvents(bool want_read, bool want_write) const = 0;
  // Returns true if Read may return data or an error even though the socket is not readable.
  virtual bool Buffered() const { return false; }
  virtual int fd() const = 0;
  // Returns nullopt if the other host has acknowledged all data and TCP probes. Otherwise returns
  // the time since the other host's last acknowledgement. The other host's kernel sends
  // acknowledgements even if the other process is busy or stopped.
  virtual std::optional<Duration> Unacknowledged() const { return std::nullopt; }
  // Ends the stream in both directions.
  virtual void Shutdown() = 0;
};

// Takes ownership of a connected socket, makes it non-blocking and sets TCP_NODELAY. If no memory
// is left, closes the socket and throws std::bad_alloc.
std::unique_ptr<ByteStream> MakeTcpStream(int fd);

}  // namespace muster::transport
