// Calls a function when a socket becomes readable or writable. Internal to DataListener
// (data_listener.h).
#pragma once

#include <poll.h>

#include <asio.hpp>
#include <system_error>
#include <utility>

namespace muster::transport {

// Only the thread that runs the io_context may use a SocketWatch. A SocketWatch does not own the
// socket. Stop or the destructor must run before the socket is closed.
class SocketWatch {
 public:
  explicit SocketWatch(asio::io_context& io) : descriptor_(io) {}
  ~SocketWatch() { Stop(); }

  std::error_code Start(int fd) {
    std::error_code error;
    descriptor_.assign(fd, error);
    return error;
  }
  void Stop() {
    if (descriptor_.is_open()) descriptor_.release();
  }
  // Calls `then` once when the socket is ready for `events`, a set of POLLIN and POLLOUT. Stop
  // cancels the call. If `events` has both events, waits only for POLLOUT, because the peer sends
  // nothing before it has received the data that this side must write.
  template <typename Then>
  void Await(short events, Then then) {
    const auto what = (events & POLLOUT) != 0 ? asio::posix::descriptor_base::wait_write
                                              : asio::posix::descriptor_base::wait_read;
    descriptor_.async_wait(what, [then = std::move(then)](std::error_code error) {
      if (error != asio::error::operation_aborted) then();
    });
  }

 private:
  asio::posix::stream_descriptor descriptor_;
};

}  // namespace muster::transport
