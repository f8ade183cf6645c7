// TLS 1.3 over another byte stream. The session comes from security::StreamSecurity, which knows
// keys and trust; this moves its bytes. One thread at a time, but for Shutdown, which any thread
// may call, and PollEvents and Buffered, which may be called beside Read and Write.
//
// Write gathers what it is given into full records and hands several to the socket at once. It
// counts a byte as moved when the whole record that carries it has left, so that nothing waits here
// for a call that may never come.
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
  // AES-GCM is safe for 2^24.5 records under one key (RFC 8446, 5.5).
  static constexpr uint64_t kRecordsPerKey = uint64_t{1} << 22;
  // `session` has no socket yet.
  static absl::StatusOr<std::unique_ptr<TlsStream>> Make(std::unique_ptr<ByteStream> below,
                                                         security::SslPtr session,
                                                         uint64_t records_per_key = kRecordsPerKey);
  ~TlsStream() override;

  // Never blocks: true when it is done, false where the socket is to be polled for
  // PollEvents(true, false) before the next call. What its last flight leaves here goes with the
  // first Write.
  absl::StatusOr<bool> Handshake();
  // The other side closed the connection, or the network did: nothing was wrong with what it said.
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
  // What OpenSSL reads from and writes to.
  struct Bio;
  class Cursor;
  // One that is sealed, and not counted as moved.
  struct Record {
    uint64_t end = 0;  // by the count of all sealed bytes
    size_t plain = 0;
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
  bool done_ = false;  // the handshake
  bool ended_ = false;
  absl::Status error_;  // the first one, of whichever call
  absl::Status below_error_;

  std::vector<std::byte> inbox_;  // as they came, from taken_ to have_
  size_t taken_ = 0, have_ = 0;
  std::vector<std::byte> outbox_;  // sealed, the first flushed_ of them gone
  size_t flushed_ = 0;
  uint64_t all_sealed_ = 0, all_flushed_ = 0;  // bytes since the beginning
  std::deque<Record> records_;
  size_t sealed_ = 0;       // plain bytes of records_
  uint64_t under_key_ = 0;  // records
  std::vector<std::byte> gather_;

  std::atomic<bool> buffered_ = false, unsent_ = false;
};

}  // namespace muster::transport
