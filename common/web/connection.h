// A client's connection to an HTTP server, plaintext or TLS, as a stream for cpp-httplib. Each call
// except Rest returns at the connection's deadline at the latest. All calls return when the server
// stops. The connection hides the Range header from cpp-httplib, because cpp-httplib overflows the
// stack when it parses a long Range header. Used by one thread.
#pragma once

#include <httplib.h>
#include <poll.h>

#include <cstddef>
#include <string>

#include "common/base/clock.h"
#include "common/base/files/fd.h"
#include "common/security/stream_security.h"
#include "muster/status.h"

namespace muster::web {

class Connection final : public httplib::Stream {
 public:
  // Takes ownership of a connected, non-blocking socket. `stop` is a descriptor that becomes
  // readable when the server stops. The connection reads at most `max_request_bytes`.
  Connection(Fd socket, int stop, size_t max_request_bytes)
      : socket_(std::move(socket)), stop_(stop), may_read_(max_request_bytes) {}
  ~Connection() override;

  void SetDeadline(MonotonicTime deadline) { deadline_ = deadline; }
  // Performs the TLS handshake. Returns an error if the client presents no trusted certificate.
  absl::Status Handshake(security::SslPtr session);
  // Ends the response. Then reads and drops further bytes from the client until the client closes
  // the connection, for at most one second. If the socket were closed with unread data, the kernel
  // could reset the connection before the client has read the response.
  void Finish();
  // Blocks for `time` and returns true. Returns false as soon as the client disconnects or the
  // server stops.
  bool Rest(Duration time);

  bool is_readable() const override { return begin_ < end_ || Wait(POLLIN, Duration::zero()); }
  bool is_writable() const override { return !broken_ && Wait(POLLOUT, Duration::zero()); }
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_.get(); }

 private:
  // Blocks until one of the poll events `events` occurs, for at most `limit`. Returns false if none
  // occurs or the server stops.
  bool Wait(short events, Duration limit) const;
  bool WaitUntilDeadline(short events) const;
  // Returns the poll event that OpenSSL needs after a call such as SSL_read has returned `result`.
  // Returns 0 after an error.
  short Wanted(int result) const;
  ssize_t ReadSome(char* to, size_t size);
  // Renames the Range header if the next bytes of the request contain its name.
  void HideRanges(char* bytes, size_t size);
  ssize_t WriteSome(const char* from, size_t size);

  const Fd socket_;
  const int stop_;
  security::SslPtr ssl_;  // Null: plaintext.
  MonotonicTime deadline_;
  size_t may_read_;  // The number of request bytes that may still be read.
  // How many characters of the header name "range" the current line has matched so far, ignoring
  // case. npos if the line does not begin with this name.
  size_t matched_ = 0;
  bool broken_ = false;
  size_t begin_ = 0, end_ = 0;  // The range of unread bytes in buffer_.
  char buffer_[4096];
};

}  // namespace muster::web
