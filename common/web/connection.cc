#include "common/web/connection.h"

#include <netinet/in.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include "common/security/refusal.h"

namespace muster::web {
namespace {

// Timeout for a client to close the connection after it has received the response.
constexpr Duration kLinger = std::chrono::seconds(1);

void Describe(const sockaddr_storage& address, std::string* ip, int* port) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    *port = ntohs(v4.sin_port);
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    *port = ntohs(v6.sin6_port);
  }
  *ip = text;
}

}  // namespace

Connection::~Connection() {
  if (ssl_ != nullptr) ERR_clear_error();
}

bool Connection::Wait(short events, Duration limit) const {
  pollfd polled[] = {{socket_.get(), events, 0}, {stop_, POLLIN, 0}};
  const MonotonicTime until = Clock::now() + limit;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max<Duration>(until - Clock::now(), Duration::zero()));
    const int ready = poll(polled, 2, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    return ready > 0 && polled[1].revents == 0 && polled[0].revents != 0;
  }
}

bool Connection::WaitUntilDeadline(short events) const {
  const Duration left = deadline_ - Clock::now();
  return left > Duration::zero() && Wait(events, left);
}

short Connection::Wanted(int result) const {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return POLLIN;
    case SSL_ERROR_WANT_WRITE:
      return POLLOUT;
    default:
      return 0;
  }
}

absl::Status Connection::Handshake(security::SslPtr session) {
  ssl_ = std::move(session);
  SSL_set_min_proto_version(ssl_.get(), TLS1_2_VERSION);
  if (SSL_set_fd(ssl_.get(), socket_.get()) != 1) return PeerLost("no TLS session");
  while (true) {
    ERR_clear_error();
    const int result = SSL_accept(ssl_.get());
    if (result == 1) break;
    const short wanted = Wanted(result);
    if (wanted == 0) return PeerLost("the TLS handshake failed");
    if (!WaitUntilDeadline(wanted)) return DeadlinePassed("the TLS handshake took too long");
  }
  if (SSL_get0_peer_certificate(ssl_.get()) == nullptr)
    return PeerLost("the client shows no certificate");
  if (const long verified = SSL_get_verify_result(ssl_.get()); verified != X509_V_OK)
    return PeerLost(security::RefusedCertificateText(verified));
  return absl::OkStatus();
}

ssize_t Connection::ReadSome(char* to, size_t size) {
  while (true) {
    short wanted = POLLIN;
    ssize_t got;
    if (ssl_ != nullptr) {
      ERR_clear_error();
      got = SSL_read(ssl_.get(), to, static_cast<int>(size));
      if (got > 0) return got;
      wanted = Wanted(static_cast<int>(got));
      if (wanted == 0) return -1;
    } else {
      got = recv(socket_.get(), to, size, MSG_DONTWAIT);
      if (got >= 0) return got;
      if (errno != EAGAIN && errno != EINTR) return -1;
    }
    if (!WaitUntilDeadline(wanted)) return -1;
  }
}

// cpp-httplib matches the value with a std::regex before the access check. The regex recurses once
// for each character, so a long value overflows the stack.
void Connection::HideRanges(char* bytes, size_t size) {
  constexpr std::string_view kName = "range";
  for (char& byte : std::span(bytes, size)) {
    if (byte == '\n') {
      matched_ = 0;
    } else if (matched_ < kName.size() && (byte | 0x20) == kName[matched_]) {
      if (++matched_ == kName.size()) byte = '-';
    } else {
      matched_ = std::string_view::npos;
    }
  }
}

ssize_t Connection::read(char* to, size_t size) {
  if (begin_ == end_) {
    const size_t room = std::min(sizeof buffer_, may_read_);
    const ssize_t got = room == 0 || broken_ ? -1 : ReadSome(buffer_, room);
    if (got <= 0) {
      broken_ = got < 0;
      return got;
    }
    HideRanges(buffer_, got);
    may_read_ -= got;
    begin_ = 0;
    end_ = got;
  }
  const size_t taken = std::min(size, end_ - begin_);
  std::memcpy(to, buffer_ + begin_, taken);
  begin_ += taken;
  return static_cast<ssize_t>(taken);
}

ssize_t Connection::WriteSome(const char* from, size_t size) {
  while (true) {
    short wanted = POLLOUT;
    ssize_t sent;
    if (ssl_ != nullptr) {
      ERR_clear_error();
      sent = SSL_write(ssl_.get(), from, static_cast<int>(std::min<size_t>(size, 1 << 20)));
      if (sent > 0) return sent;
      wanted = Wanted(static_cast<int>(sent));
      if (wanted == 0) return -1;
    } else {
      sent = send(socket_.get(), from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent >= 0) return sent;
      if (errno != EAGAIN && errno != EINTR) return -1;
    }
    if (!WaitUntilDeadline(wanted)) return -1;
  }
}

ssize_t Connection::write(const char* from, size_t size) {
  size_t done = 0;
  while (done < size && !broken_) {
    const ssize_t sent = WriteSome(from + done, size - done);
    broken_ = sent < 0;
    if (!broken_) done += sent;
  }
  return broken_ ? -1 : static_cast<ssize_t>(done);
}

void Connection::Finish() {
  if (broken_) return;
  deadline_ = Clock::now() + kLinger;
  if (ssl_ != nullptr) {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
  }
  shutdown(socket_.get(), SHUT_WR);
  char rest[1024];
  for (int i = 0; i < 64; ++i) {
    const ssize_t got = recv(socket_.get(), rest, sizeof rest, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
    if (got < 0 && !WaitUntilDeadline(POLLIN)) return;
  }
}

bool Connection::Rest(Duration time) {
  // A client of a stream sends nothing after its request, so a readable socket means that it has
  // disconnected.
  pollfd polled[] = {{socket_.get(), POLLRDHUP | POLLIN, 0}, {stop_, POLLIN, 0}};
  const auto limit = std::chrono::ceil<std::chrono::milliseconds>(time);
  return poll(polled, 2, static_cast<int>(limit.count())) == 0;
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0)
    Describe(address, &ip, &port);
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0)
    Describe(address, &ip, &port);
}

}  // namespace muster::web
