// One client's connection, plain or TLS, as cpp-httplib reads and writes it. Each call ends at the
// connection's deadline, or when the server stops. cpp-httplib does not see the header Range. Used
// by one thread.
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
  // Takes over a connected, non-blocking socket. `stop` becomes readable when the server stops.
  Connection(Fd socket, int stop, size_t max_request_bytes)
      : socket_(std::move(socket)), stop_(stop), may_read_(max_request_bytes) {}
  ~Connection() override;

  void SetDeadline(MonotonicTime deadline) { deadline_ = deadline; }
  // Makes the TLS handshake. Returns an error if the client shows no trusted certificate.
  absl::Status Handshake(security::SslPtr session);
  // Ends the response in order: sends what is left, and waits until the client has closed or sends
  // no more, so that the kernel does not reset the connection before the client has read it.
  void Finish();
  // Blocks for `time`. Returns false if the client has left, or the server stops.
  bool Rest(Duration time);

  bool is_readable() const override { return begin_ < end_ || Wait(POLLIN, Duration::zero()); }
  bool is_writable() const override { return !broken_ && Wait(POLLOUT, Duration::zero()); }
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_.get(); }

 private:
  // Blocks until one of `events`, for at most `limit`. Returns false if none came.
  bool Wait(short events, Duration limit) const;
  bool WaitUntilDeadline(short events) const;
  // Returns the event to wait for after a result of SSL_read and its like, 0 after an error.
  short Wanted(int result) const;
  ssize_t ReadSome(char* to, size_t size);
  // Renames the header Range in the next bytes of the request.
  void HideRanges(char* bytes, size_t size);
  ssize_t WriteSome(const char* from, size_t size);

  const Fd socket_;
  const int stop_;
  security::SslPtr ssl_;  // Null: plain.
  MonotonicTime deadline_;
  size_t may_read_;     // Bytes of the request that may still come.
  size_t matched_ = 0;  // The part of "range" that the line begins with. npos: another line.
  bool broken_ = false;
  size_t begin_ = 0, end_ = 0;  // The bytes of buffer_ that are read ahead.
  char buffer_[4096];
};

}  // namespace muster::web
