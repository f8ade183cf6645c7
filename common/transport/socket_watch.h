// Reports, on the thread of an io_context, when a socket with another owner is ready. Internal.
#pragma once

#include <poll.h>

#include <asio.hpp>
#include <system_error>
#include <utility>

namespace muster::transport {

// Stop, or the destructor, must be called before the socket is closed. Used only on that thread.
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
  // Calls `then` once, unless stopped before. POLLOUT takes precedence over POLLIN: until pending
  // data is written, nothing will arrive.
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
