// Incoming data connections that have not sent a complete hello (hello.h) yet. Internal to
// DataListener (data_listener.h). Only the listener's thread uses these classes.
#pragma once

#include <array>
#include <asio.hpp>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/files/fd.h"
#include "common/transport/listener/connection_registry.h"
#include "common/transport/listener/socket_watch.h"
#include "common/transport/tls_stream.h"

namespace muster::transport {

class PendingConnection : public std::enable_shared_from_this<PendingConnection> {
 public:
  // The progress of the peer. kSilent: the peer has sent nothing. kSpeaks: the peer has sent bytes.
  // kKnown: the peer has sent a valid certificate. If there are too many connections, connections
  // of the lowest stage are closed first.
  enum class Stage { kSilent, kSpeaks, kKnown };

  PendingConnection(asio::io_context& io, Fd socket, Visitor visitor,
                    std::shared_ptr<ConnectionRegistry> registry);
  // Starts to read. Closes the connection if the hello is not complete after `timeout`. If no
  // memory is left, closes the connection and throws std::bad_alloc.
  void Start(Duration timeout);
  // Closes the connection and logs the reason. Has no effect if the connection is already closed.
  void Close(std::string_view why);
  bool open() const { return open_; }
  Stage stage() const { return stage_; }
  const std::string& source() const { return visitor_.source; }

 private:
  void Advance();
  void Step();
  // Each of these methods carries out a part of the protocol as far as possible without blocking.
  // Returns whether the part is complete.
  absl::StatusOr<bool> Secure();
  absl::StatusOr<bool> Begin();
  absl::StatusOr<bool> ReadHello();
  void Refuse(const absl::Status& why);
  void Send(const void* bytes, size_t size);
  void Drop();

  std::unique_ptr<ByteStream> stream_;
  TlsStream* tls_ = nullptr;  // stream_ if it is a TlsStream, else null.
  SocketWatch watch_;         // Watches stream_. Destroyed before stream_.
  asio::steady_timer timer_;
  const std::shared_ptr<ConnectionRegistry> registry_;
  Visitor visitor_;
  bool open_ = true;
  Stage stage_ = Stage::kSilent;
  std::array<std::byte, kHelloBytes> hello_{};
  size_t have_ = 0;  // The number of bytes of hello_ that were received.
};

// The pending connections of a listener. A source (Visitor::source) is an IPv4 address or a /64
// network of IPv6. At the limit for a source, a new connection replaces one of the same source. At
// the total limit, it replaces a connection of the source that has the most connections.
class PendingConnections {
 public:
  PendingConnections(size_t most, size_t most_of_one) : most_(most), most_of_one_(most_of_one) {}
  // Adds a connection. If a limit is reached, closes another connection first.
  void Add(const std::shared_ptr<PendingConnection>& pending);
  // Closes a quarter of the connections. Called when the process has no free descriptors.
  void Thin();

 private:
  void Forget();
  void CloseOneOf(const std::string& source, std::string_view why);
  std::string Largest(size_t* count) const;

  const size_t most_, most_of_one_;
  std::list<std::weak_ptr<PendingConnection>> all_;  // Sorted by age, the oldest first.
};

}  // namespace muster::transport
