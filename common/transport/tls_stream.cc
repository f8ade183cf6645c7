#include "common/transport/tls_stream.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "common/security/refusal.h"

namespace muster::transport {
namespace {

constexpr size_t kRecord = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr size_t kFirstInbox = 2048, kLargestInbox = 128 << 10;
constexpr size_t kTogether = 256 << 10;  // Sealed bytes that are sent with one system call.
// The maximum number of unsent bytes. No handshake has more, so a peer with more reads nothing.
constexpr size_t kMaxUnsent = 1 << 20;
// The first cipher is the fastest with AES instructions, and the last one without them.
constexpr const char* kCiphers =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

}  // namespace

// OpenSSL calls these functions, so no exception may leave them.
struct TlsStream::Bio {
  static int Write(BIO* bio, const char* data, size_t bytes, size_t* written) {
    auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    if (stream.Waiting() + bytes > kMaxUnsent) return 0;
    try {
      const auto* from = reinterpret_cast<const std::byte*>(data);
      stream.outbox_.insert(stream.outbox_.end(), from, from + bytes);
    } catch (const std::bad_alloc&) {
      stream.below_error_ = absl::ResourceExhaustedError("no memory for a TLS record");
      return 0;
    }
    stream.all_sealed_ += bytes;
    *written = bytes;
    return 1;
  }

  static int Read(BIO* bio, char* data, size_t room, size_t* read) {
    auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    if (stream.taken_ == stream.have_) {
      try {
        if (!stream.Fill()) {
          if (stream.below_error_.ok()) BIO_set_retry_read(bio);
          return 0;
        }
      } catch (const std::bad_alloc&) {
        stream.below_error_ = absl::ResourceExhaustedError("no memory for a TLS record");
        return 0;
      }
    }
    *read = std::min(room, stream.have_ - stream.taken_);
    std::memcpy(data, stream.inbox_.data() + stream.taken_, *read);
    stream.taken_ += *read;
    return 1;
  }

  static long Control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static BIO_METHOD* Method() {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "byte stream");
      BIO_meth_set_write_ex(m, Write);
      BIO_meth_set_read_ex(m, Read);
      BIO_meth_set_ctrl(m, Control);
      return m;
    }();
    return method;
  }
};

// A position in the input of Write.
class TlsStream::Cursor {
 public:
  Cursor(std::span<const iovec> pieces, size_t from) : pieces_(pieces) {
    for (const iovec& piece : pieces) left_ += piece.iov_len;
    Skip(std::min(from, left_));
  }
  size_t left() const { return left_; }
  // Returns the bytes from this position to the end of the current iovec.
  std::span<const std::byte> Next() const {
    return {static_cast<const std::byte*>(pieces_[0].iov_base) + at_, pieces_[0].iov_len - at_};
  }
  void Skip(size_t bytes) {
    left_ -= bytes;
    at_ += bytes;
    while (!pieces_.empty() && at_ >= pieces_[0].iov_len) {
      at_ -= pieces_[0].iov_len;
      pieces_ = pieces_.subspan(1);
    }
  }

 private:
  std::span<const iovec> pieces_;
  size_t at_ = 0, left_ = 0;
};

absl::StatusOr<std::unique_ptr<TlsStream>> TlsStream::Make(std::unique_ptr<ByteStream> below,
                                                           security::SslPtr session,
                                                           uint64_t records_per_key) {
  BIO* const bio = BIO_new(Bio::Method());
  if (bio == nullptr) return absl::ResourceExhaustedError("no memory for a TLS session");
  std::unique_ptr<TlsStream> stream(
      new TlsStream(std::move(below), std::move(session), records_per_key));
  SSL* const ssl = stream->ssl_.get();
  BIO_set_data(bio, stream.get());
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl, bio, bio);
  if (SSL_set_min_proto_version(ssl, TLS1_3_VERSION) != 1 ||
      SSL_set_ciphersuites(ssl, kCiphers) != 1 || SSL_set_num_tickets(ssl, 1) != 1)
    return absl::InternalError("OpenSSL does not know TLS 1.3");
  SSL_set_read_ahead(ssl, 0);  // The inbox reads ahead instead.
  return stream;
}

TlsStream::~TlsStream() {
  // Without this, OpenSSL would not resume the session.
  if (done_ && (error_.ok() || ended_))
    SSL_set_shutdown(ssl_.get(), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
}

absl::StatusOr<bool> TlsStream::Handshake() {
  if (!error_.ok()) return error_;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  done_ = result == 1;
  if (!done_) {
    const absl::Status status = Failed(result);
    const absl::Status flushed = Flush();  // Also sends an alert.
    if (!status.ok()) return Keep(status);
    if (!flushed.ok()) return Keep(flushed);
  }
  Publish(/*more=*/done_ && taken_ < have_);
  return done_;
}

absl::StatusOr<size_t> TlsStream::Read(std::span<const iovec> into) {
  if (!error_.ok()) return error_;
  if (Waiting() > 0) {
    if (const absl::Status flushed = Flush(); !flushed.ok()) return Keep(flushed);
  }
  size_t moved = 0;
  bool dry = false;
  absl::Status status;
  for (size_t i = 0, at = 0; i < into.size() && !dry && status.ok(); ++i, at = 0) {
    while (at < into[i].iov_len) {
      size_t bytes = 0;
      ERR_clear_error();
      const int result = SSL_read_ex(ssl_.get(), static_cast<char*>(into[i].iov_base) + at,
                                     into[i].iov_len - at, &bytes);
      if (result != 1) {
        status = Failed(result);
        dry = true;
        break;
      }
      at += bytes;
      moved += bytes;
    }
  }
  if (Waiting() > 0)
    (void)Flush();  // Sends the reply to a key update. The next call reports an error.
  if (!status.ok()) (void)Keep(status);
  Publish(!dry && (taken_ < have_ || SSL_pending(ssl_.get()) > 0));
  if (!status.ok() && moved == 0) return status;
  return moved;
}

absl::StatusOr<size_t> TlsStream::Write(std::span<const iovec> from) {
  if (!error_.ok()) return error_;
  Cursor cursor(from, 0);
  if (cursor.left() < sealed_)
    return Keep(absl::InternalError("a write does not begin with what the last one left over"));
  cursor.Skip(sealed_);
  size_t moved = 0;
  for (;;) {
    while (cursor.left() > 0 && Waiting() < kTogether) {
      if (const absl::Status sealed = Seal(cursor); !sealed.ok()) return Keep(sealed);
    }
    if (const absl::Status flushed = Flush(); !flushed.ok()) return Keep(flushed);
    moved += CountLeft();
    if (Waiting() > 0 || cursor.left() == 0) break;
  }
  unsent_.store(Waiting() > 0, std::memory_order_release);
  return moved;
}

short TlsStream::PollEvents(bool want_read, bool want_write) const {
  const bool write = want_write || (want_read && unsent_.load(std::memory_order_acquire));
  return static_cast<short>((want_read ? POLLIN : 0) | (write ? POLLOUT : 0));
}

// Encrypts the next record of the input into the outbox.
absl::Status TlsStream::Seal(Cursor& cursor) {
  const size_t bytes = std::min(kRecord, cursor.left());
  std::span<const std::byte> plain = cursor.Next();
  if (plain.size() < bytes) {
    gather_.resize(kRecord);
    for (size_t at = 0; at < bytes;) {
      const std::span<const std::byte> next = cursor.Next();
      const size_t n = std::min(next.size(), bytes - at);
      std::memcpy(gather_.data() + at, next.data(), n);
      at += n;
      cursor.Skip(n);
    }
    plain = gather_;
  } else {
    cursor.Skip(bytes);
  }
  if (++under_key_ > records_per_key_) {
    under_key_ = 1;
    SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
  }
  size_t written = 0;
  ERR_clear_error();
  const int result = SSL_write_ex(ssl_.get(), plain.data(), bytes, &written);
  if (result != 1 || written != bytes) {
    const absl::Status status = Failed(result);
    return status.ok() ? absl::InternalError("TLS takes nothing") : status;
  }
  sealed_ += bytes;
  records_.push_back({all_sealed_, bytes});
  return absl::OkStatus();
}

absl::Status TlsStream::Flush() {
  while (Waiting() > 0) {
    const iovec rest{outbox_.data() + flushed_, Waiting()};
    MUSTER_ASSIGN_OR_RETURN(const size_t n, below_->Write({&rest, 1}));
    if (n == 0) return absl::OkStatus();
    flushed_ += n;
    all_flushed_ += n;
  }
  outbox_.clear();
  flushed_ = 0;
  return absl::OkStatus();
}

// Returns the number of plain bytes in the records that were sent since the last call.
size_t TlsStream::CountLeft() {
  size_t plain = 0;
  while (!records_.empty() && records_.front().end <= all_flushed_) {
    plain += records_.front().plain;
    records_.pop_front();
  }
  sealed_ -= plain;
  return plain;
}

// Reads into the empty inbox. Returns false if nothing has arrived.
bool TlsStream::Fill() {
  // The inbox is small until the peer is authenticated.
  if (inbox_.empty()) inbox_.resize(kFirstInbox);
  if (done_ && have_ == inbox_.size() && inbox_.size() < kLargestInbox)
    inbox_.resize(std::min(8 * inbox_.size(), kLargestInbox));
  taken_ = have_ = 0;
  const iovec into{inbox_.data(), inbox_.size()};
  const absl::StatusOr<size_t> n = below_->Read({&into, 1});
  if (n.ok()) {
    have_ = *n;
    return *n > 0;
  }
  below_error_ = n.status();
  ended_ = true;
  return false;
}

// Returns why a call of OpenSSL did nothing. Returns OK if the call must be repeated after more
// data has arrived.
absl::Status TlsStream::Failed(int result) {
  const int kind = SSL_get_error(ssl_.get(), result);
  if (!below_error_.ok()) {
    if (done_ && ended_ && SSL_has_pending(ssl_.get()))
      return PeerLost("the connection was cut in the middle of a record");
    return below_error_;
  }
  if (kind == SSL_ERROR_WANT_READ) return absl::OkStatus();
  if (kind == SSL_ERROR_ZERO_RETURN) {
    ended_ = true;
    return PeerLost("the other side closed the connection");
  }
  const unsigned long error = ERR_peek_error();
  const int reason = ERR_GET_REASON(error);
  const char* const text = ERR_reason_error_string(error);
  const std::string detail = text == nullptr ? "no reason given" : text;
  if (reason > SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256) {
    const std::string_view alert = security::AlertText(reason - SSL_AD_REASON_OFFSET);
    if (!alert.empty()) return PeerLost(alert);
    return PeerLost(fmt::format("the other side ended the TLS session: {}", detail));
  }
  if (reason == ERR_R_MALLOC_FAILURE) return absl::ResourceExhaustedError("no memory for TLS");
  if (done_) return PeerLost(fmt::format("the data was changed on its way ({})", detail));
  return PeerLost(HandshakeText(reason, detail));
}

std::string TlsStream::HandshakeText(int reason, const std::string& detail) const {
  if (const long verified = SSL_get_verify_result(ssl_.get()); verified != X509_V_OK)
    return security::RefusedCertificateText(verified);
  switch (reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return "it shows no certificate";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_NO_PROTOCOLS_AVAILABLE:
    case SSL_R_VERSION_TOO_LOW:
      return "it does not speak TLS 1.3";
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
      return "it does not speak TLS, which this process demands: give both the same key or "
             "certificates";
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
    case SSL_R_BAD_SIGNATURE:
    case SSL_R_DIGEST_CHECK_FAILED:
      return fmt::format("the data was changed on its way ({})", detail);
    default:
      return fmt::format("the TLS handshake failed: {}", detail);
  }
}

absl::Status TlsStream::Keep(absl::Status error) {
  if (error_.ok()) error_ = std::move(error);
  Publish(false);
  return error_;
}

// Publishes the state for PollEvents and Buffered, which other threads may call. `more` means that
// Read may return data before the socket is readable.
void TlsStream::Publish(bool more) {
  buffered_.store(more || !error_.ok(), std::memory_order_release);
  unsent_.store(Waiting() > 0, std::memory_order_release);
}

}  // namespace muster::transport
