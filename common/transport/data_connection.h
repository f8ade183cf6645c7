// An established data connection: a byte stream between two processes that carries frames. A
// connection belongs to one generation (see listener/hello.h) and is never reused for another
// generation. Only one thread at a time may use a connection, but any thread may call Shutdown.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/base/clock.h"
#include "common/transport/byte_stream.h"
#include "common/transport/wait.h"
#include "muster/status.h"

namespace muster::transport {

// The 64-byte header of a frame. A payload of `payload_bytes` bytes follows the header. The caller
// defines `kind` and `body`. An example is in common/collective/group/links.h.
struct FrameHeader {
  static constexpr uint32_t kMagic = 0x314d464d;  // "MFM1".
  uint32_t magic = kMagic;
  uint16_t kind = 0;
  uint16_t reserved = 0;
  uint64_t payload_bytes = 0;
  unsigned char body[48] = {};
};
static_assert(sizeof(FrameHeader) == 64);

struct ConnectionInfo {
  uint64_t generation = 0;
  int from = 0, to = 0;  // As in Hello. `from` has opened the connection.
  uint32_t channel = 0;  // As in Hello.
  std::string remote;    // "10.0.0.4:5123".
  std::string peer;      // The task in the peer's certificate ("worker:1"). Empty without security.
};

class DataConnection {
 public:
  DataConnection(std::unique_ptr<ByteStream> stream, ConnectionInfo info)
      : stream_(std::move(stream)), info_(std::move(info)) {}

  const ConnectionInfo& info() const { return info_; }

  // These methods do not block. byte_stream.h describes them.
  absl::StatusOr<size_t> TryWrite(std::span<const iovec> from) { return stream_->Write(from); }
  absl::StatusOr<size_t> TryRead(std::span<const iovec> into) { return stream_->Read(into); }
  short PollEvents(bool read, bool write) const { return stream_->PollEvents(read, write); }
  bool Buffered() const { return stream_->Buffered(); }
  int fd() const { return stream_->fd(); }
  std::optional<Duration> Unacknowledged() const { return stream_->Unacknowledged(); }

  // Sends all bytes of `send` and fills all of `receive`, both at the same time. Either span may be
  // empty. Blocks until both are complete. Returns DeadlinePassed after `deadline`, PeerLost if the
  // connection has failed, and Superseded if `abort` is set. After an error, the position in the
  // stream is unknown, so the caller must call Shutdown and destroy the connection.
  absl::Status Exchange(std::span<const std::byte> send, std::span<std::byte> receive,
                        MonotonicTime deadline, const AbortSignal& abort);

  // Ends the stream in both directions. Wakes all threads that wait for the connection, in both
  // processes.
  void Shutdown() { stream_->Shutdown(); }

 private:
  const std::unique_ptr<ByteStream> stream_;
  const ConnectionInfo info_;
};

}  // namespace muster::transport
