// Tells, on the thread of an io_context, when a socket that somebody else owns is ready. Internal.
#pragma once

#include <poll.h>

#include <asio.hpp>
#include <system_error>
#include <utility>

namespace muster::transport {

// To be ended (Stop, or its destructor) before the socket is closed. On that thread only.
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
  // Calls `then` once, unless it is stopped before. What is to be written goes first: without it
  // nothing will come.
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
