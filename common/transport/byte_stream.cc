#include "common/transport/byte_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/files/fd.h"

namespace muster::transport {
namespace {

class TcpStream : public ByteStream {
 public:
  explicit TcpStream(Fd fd) : fd_(std::move(fd)) {
    fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
    const int on = 1;
    setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    // The kernel tunes the buffer sizes. Setting them would disable the tuning, and limit them to
    // net.core.*mem_max, which is often 208 KiB.
  }

  absl::StatusOr<size_t> Read(std::span<const iovec> into) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(into.data());
    message.msg_iovlen = into.size();
    for (;;) {
      const ssize_t n = recvmsg(fd_.get(), &message, MSG_DONTWAIT);
      if (n > 0) return static_cast<size_t>(n);
      if (n == 0) return PeerLost("the other side closed the connection");
      if (errno == EINTR) continue;
      return WouldBlockOr("receive");
    }
  }

  absl::StatusOr<size_t> Write(std::span<const iovec> from) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(from.data());
    message.msg_iovlen = from.size();
    for (;;) {
      const ssize_t n = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n >= 0) return static_cast<size_t>(n);
      if (errno == EINTR) continue;
      return WouldBlockOr("send");
    }
  }

  short PollEvents(bool want_read, bool want_write) const override {
    return static_cast<short>((want_read ? POLLIN : 0) | (want_write ? POLLOUT : 0));
  }
  int fd() const override { return fd_.get(); }
  std::optional<Duration> Unacknowledged() const override {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
    if (info.tcpi_unacked == 0 && info.tcpi_probes == 0) return std::nullopt;
    return std::chrono::milliseconds(info.tcpi_last_ack_recv);
  }
  void Shutdown() override { shutdown(fd_.get(), SHUT_RDWR); }

 private:
  static absl::StatusOr<size_t> WouldBlockOr(const char* verb) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    return PeerLost(fmt::format("{} failed: {}", verb, strerror(errno)));
  }

  const Fd fd_;
};

}  // namespace

std::unique_ptr<ByteStream> MakeTcpStream(int fd) { return std::make_unique<TcpStream>(Fd(fd)); }

}  // namespace muster::transport
