// TLS 1.3 over another byte stream. The TLS session comes from security::StreamSecurity, which
// holds the key and the trusted certificates. Only one thread at a time may use a stream, with two
// exceptions: any thread may call Shutdown, and PollEvents and Buffered may run in parallel with
// Read and Write.
//
// Write encrypts its input in records of up to 16 KiB, and writes several records to the socket
// with one system call. Write counts a byte as moved when the byte's whole record was written to
// the socket. When all bytes count as moved, no encrypted data remain in the TlsStream.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/security/stream_security.h"
#include "common/transport/byte_stream.h"
#include "muster/status.h"

namespace muster::transport {

class TlsStream final : public ByteStream {
 public:
  // The stream changes the encryption key after this number of records. AES-GCM is safe for 2^24.5
  // records under one key (RFC 8446, section 5.5).
  static constexpr uint64_t kRecordsPerKey = uint64_t{1} << 22;
  // REQUIRES: `session` has no socket.
  static absl::StatusOr<std::unique_ptr<TlsStream>> Make(std::unique_ptr<ByteStream> below,
                                                         security::SslPtr session,
                                                         uint64_t records_per_key = kRecordsPerKey);
  ~TlsStream() override;

  // Continues the handshake without blocking. Returns whether the handshake is complete. If it is
  // not complete, the caller must poll for PollEvents(true, false) before the next call. The first
  // Write sends the handshake bytes that did not fit into the socket's buffer.
  absl::StatusOr<bool> Handshake();
  // Returns true if the other side or the network has closed the connection. Returns false if the
  // connection is open, or if the stream has failed for another reason, such as invalid data.
  bool ended() const { return ended_; }
  const SSL& session() const { return *ssl_; }

  absl::StatusOr<size_t> Read(std::span<const iovec> into) override;
  absl::StatusOr<size_t> Write(std::span<const iovec> from) override;
  short PollEvents(bool want_read, bool want_write) const override;
  bool Buffered() const override { return buffered_.load(std::memory_order_acquire); }
  int fd() const override { return below_->fd(); }
  std::optional<Duration> Unacknowledged() const override { return below_->Unacknowledged(); }
  void Shutdown() override { below_->Shutdown(); }

 private:
  // The input and output of OpenSSL.
  struct Bio;
  class Cursor;
  // An encrypted ("sealed") record whose bytes do not count as moved yet.
  struct Record {
    uint64_t end = 0;  // The value of all_sealed_ after this record.
    size_t plain = 0;  // The size of the record before encryption, in bytes.
  };

  TlsStream(std::unique_ptr<ByteStream> below, security::SslPtr session, uint64_t records_per_key)
      : below_(std::move(below)), ssl_(std::move(session)), records_per_key_(records_per_key) {}

  absl::Status Seal(Cursor& cursor);
  absl::Status Flush();
  size_t CountLeft();
  bool Fill();
  size_t Waiting() const { return outbox_.size() - flushed_; }
  absl::Status Failed(int result);
  std::string HandshakeText(int reason, const std::string& detail) const;
  absl::Status Keep(absl::Status error);
  void Publish(bool more);

  const std::unique_ptr<ByteStream> below_;
  const security::SslPtr ssl_;
  const uint64_t records_per_key_;
  bool done_ = false;  // True if the handshake is complete.
  bool ended_ = false;
  absl::Status error_;  // The first error of any call.
  absl::Status below_error_;

  std::vector<std::byte> inbox_;  // Received bytes. Bytes [taken_, have_) are still encrypted.
  size_t taken_ = 0, have_ = 0;
  std::vector<std::byte> outbox_;  // Sealed bytes. The first flushed_ bytes were sent.
  size_t flushed_ = 0;
  // all_sealed_ is the number of bytes sealed in the stream's life. all_flushed_ is the number of
  // these bytes that were written to the socket.
  uint64_t all_sealed_ = 0, all_flushed_ = 0;
  std::deque<Record> records_;
  size_t sealed_ = 0;       // The sum of Record::plain in records_.
  uint64_t under_key_ = 0;  // The number of records sealed under the current key.
  std::vector<std::byte> gather_;

  std::atomic<bool> buffered_ = false, unsent_ = false;
};

}  // namespace muster::transport
