#include "common/transport/listener/pending_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <new>
#include <utility>

#include "common/base/peer_text.h"
#include "common/security/refusal.h"

namespace muster::transport {
namespace {

constexpr unsigned char kTlsHandshake = 0x16;  // The first byte of TLS.

}  // namespace

PendingConnection::PendingConnection(asio::io_context& io, Fd socket, Visitor visitor,
                                     std::shared_ptr<ConnectionRegistry> registry)
    : stream_(MakeTcpStream(socket.Release())),
      watch_(io),
      timer_(io),
      registry_(std::move(registry)),
      visitor_(std::move(visitor)) {}

void PendingConnection::Start(Duration timeout) {
  if (const std::error_code error = watch_.Start(stream_->fd())) return Close(error.message());
  timer_.expires_after(timeout);
  timer_.async_wait([self = shared_from_this()](std::error_code error) {
    if (!error) self->Close("it said nothing in time");
  });
  Advance();
}

void PendingConnection::Close(std::string_view why) {
  if (!open_) return;
  Drop();
  registry_->Refused(visitor_, why);
}

void PendingConnection::Drop() {
  open_ = false;
  watch_.Stop();
  timer_.cancel();
  stream_.reset();
}

// Without memory, drops the connection, which frees what it has allocated.
void PendingConnection::Advance() {
  try {
    Step();
  } catch (const std::bad_alloc&) {
    Drop();
    throw;
  }
}

void PendingConnection::Step() {
  while (open_) {
    const bool secure = registry_->security() != nullptr && stage_ != Stage::kKnown;
    const absl::StatusOr<bool> done = secure ? Secure() : ReadHello();
    if (!done.ok()) return Refuse(done.status());
    if (!*done) {
      watch_.Await(stream_->PollEvents(true, false),
                   [self = shared_from_this()] { self->Advance(); });
      return;
    }
    if (secure) continue;
    absl::StatusOr<Hello> hello = DecodeHello(std::span<const std::byte, kHelloBytes>(hello_));
    if (!hello.ok()) return Refuse(hello.status());
    auto stream = std::move(stream_);
    Drop();
    registry_->Route({registry_->Wrap(std::move(stream)), *std::move(hello), std::move(visitor_)});
  }
}

absl::StatusOr<bool> PendingConnection::Secure() {
  if (tls_ == nullptr) {
    MUSTER_ASSIGN_OR_RETURN(const bool begun, Begin());
    if (!begun) return false;
  }
  MUSTER_ASSIGN_OR_RETURN(const bool done, tls_->Handshake());
  if (!done) return false;
  const absl::StatusOr<security::Peer> peer = registry_->security()->PeerOf(tls_->session());
  if (!peer.ok()) {
    const auto answer = EncodeAnswer(HelloResult::kCertificateRefused, 0);
    Send(answer.data(), answer.size());
    return peer.status();
  }
  visitor_.peer = SanitizePeerText(peer->task);
  stage_ = Stage::kKnown;
  return true;
}

// Creates the TLS session once the first byte of TLS has arrived. Silent peers thus cost no memory
// for a session.
absl::StatusOr<bool> PendingConnection::Begin() {
  unsigned char first = 0;
  const ssize_t n = recv(stream_->fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) return absl::CancelledError();
  stage_ = Stage::kSpeaks;
  if (first != kTlsHandshake) {
    const auto answer = EncodeAnswer(HelloResult::kNeedsTls, 0);
    Send(answer.data(), answer.size());
    return PeerLost("it does not speak TLS, which this process demands");
  }
  MUSTER_ASSIGN_OR_RETURN(security::SslPtr session,
                          registry_->security()->NewSession(/*server=*/true, ""));
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<TlsStream> tls,
                          TlsStream::Make(std::move(stream_), std::move(session)));
  tls_ = tls.get();
  stream_ = std::move(tls);
  return true;
}

absl::StatusOr<bool> PendingConnection::ReadHello() {
  while (have_ < kHelloBytes) {
    const size_t until = have_ < kHelloPrefixBytes ? kHelloPrefixBytes : kHelloBytes;
    const iovec into{hello_.data() + have_, until - have_};
    const absl::StatusOr<size_t> n = stream_->Read({&into, 1});
    if (!n.ok() && have_ == 0 && tls_ == nullptr) return absl::CancelledError();
    if (!n.ok()) return PeerLost("it closed before it said hello");
    if (*n == 0) return false;
    if (have_ == 0 && hello_[0] == std::byte{kTlsHandshake}) {
      Send(security::kNoTls, sizeof security::kNoTls);
      return PeerLost("it speaks TLS, which this process does not use");
    }
    have_ += *n;
    stage_ = std::max(stage_, Stage::kSpeaks);
    if (have_ != kHelloPrefixBytes) continue;
    const absl::Status prefix = CheckHelloPrefix(std::span(hello_).first<kHelloPrefixBytes>());
    if (prefix.ok()) continue;
    if (absl::IsInvalidArgument(prefix)) {  // Another version, which understands a reply.
      const auto answer = EncodeAnswer(HelloResult::kOtherVersion, 0);
      Send(answer.data(), answer.size());
    }
    return prefix;
  }
  return true;
}

void PendingConnection::Send(const void* bytes, size_t size) {
  const iovec from{const_cast<void*>(bytes), size};
  if (stream_ != nullptr) (void)stream_->Write({&from, 1});
}

void PendingConnection::Refuse(const absl::Status& why) {
  // The peer has sent no byte. The coordinator probes the port in this way.
  if (absl::IsCancelled(why)) return Drop();
  Close(Message(why));
}

// ---- PendingConnections.

void PendingConnections::Add(const std::shared_ptr<PendingConnection>& pending) {
  Forget();
  const auto mine = std::count_if(all_.begin(), all_.end(), [&](const auto& other) {
    const auto n = other.lock();
    return n != nullptr && n->source() == pending->source();
  });
  if (static_cast<size_t>(mine) >= most_of_one_) {
    CloseOneOf(pending->source(), "too many connections of this address have said nothing yet");
  } else if (all_.size() >= most_) {
    size_t count = 0;
    CloseOneOf(Largest(&count), "too many connections have said nothing yet");
  }
  all_.push_back(pending);
}

void PendingConnections::Thin() {
  Forget();
  for (size_t leave = (all_.size() + 3) / 4; leave > 0; --leave) {
    size_t count = 0;
    const std::string source = Largest(&count);
    if (count > 0) CloseOneOf(source, "this process has no descriptors left (raise ulimit -n)");
  }
}

void PendingConnections::Forget() {
  all_.remove_if([](const std::weak_ptr<PendingConnection>& i) {
    const auto pending = i.lock();
    return pending == nullptr || !pending->open();
  });
}

// Closes the source's oldest connection of the lowest stage.
void PendingConnections::CloseOneOf(const std::string& source, std::string_view why) {
  auto first = all_.end();
  PendingConnection::Stage least{};
  for (auto i = all_.begin(); i != all_.end(); ++i) {
    const auto pending = i->lock();
    if (pending == nullptr || pending->source() != source) continue;
    if (first != all_.end() && pending->stage() >= least) continue;
    first = i;
    least = pending->stage();
  }
  if (first == all_.end()) return;
  if (const auto pending = first->lock()) pending->Close(why);
  all_.erase(first);
}

// Returns the source with the most connections, and sets `*count` to their number. Of several such
// sources, returns the one with the oldest connection.
std::string PendingConnections::Largest(size_t* count) const {
  std::map<std::string, size_t> counts;
  for (const auto& i : all_) {
    if (const auto pending = i.lock()) ++counts[pending->source()];
  }
  std::string largest;
  for (const auto& i : all_) {
    const auto pending = i.lock();
    if (pending == nullptr || counts[pending->source()] <= *count) continue;
    largest = pending->source();
    *count = counts[largest];
  }
  return largest;
}

}  // namespace muster::transport
