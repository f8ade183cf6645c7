// Connections that came in and have not said hello: strangers, until they have. All of it lives on
// the listener's thread. Internal.
#pragma once

#include <array>
#include <asio.hpp>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/files/fd.h"
#include "common/transport/connection_registry.h"
#include "common/transport/socket_watch.h"
#include "common/transport/tls_stream.h"

namespace muster::transport {

class PendingConnection : public std::enable_shared_from_this<PendingConnection> {
 public:
  // What it has shown. Who has shown least gives way first.
  enum class Stage { kSilent, kSpeaks, kKnown };

  PendingConnection(asio::io_context& io, Fd socket, Visitor visitor,
                    std::shared_ptr<ConnectionRegistry> registry);
  // `timeout` is for all of it, until the hello has been read. Closed where there is no memory for
  // it, which is thrown.
  void Start(Duration timeout);
  void Close(std::string_view why);
  bool open() const { return open_; }
  Stage stage() const { return stage_; }
  const std::string& source() const { return visitor_.source; }

 private:
  void Advance();
  void Step();
  // True when it is through.
  absl::StatusOr<bool> Secure();
  absl::StatusOr<bool> Begin();
  absl::StatusOr<bool> ReadHello();
  void Refuse(const absl::Status& why);
  void Send(const void* bytes, size_t size);
  void Drop();

  std::unique_ptr<ByteStream> stream_;
  TlsStream* tls_ = nullptr;  // stream_, once it is one
  SocketWatch watch_;         // of it: ends first
  asio::steady_timer timer_;
  const std::shared_ptr<ConnectionRegistry> registry_;
  Visitor visitor_;
  bool open_ = true;
  Stage stage_ = Stage::kSilent;
  std::array<std::byte, kHelloBytes> hello_{};
  size_t have_ = 0;  // of it
};

// All of them. Each source may have so many; its own give way for its next one. Where there is no
// room at all, those of the source that has most do.
class PendingConnections {
 public:
  PendingConnections(size_t most, size_t most_of_one) : most_(most), most_of_one_(most_of_one) {}
  // Makes room before.
  void Add(const std::shared_ptr<PendingConnection>& pending);
  // Closes a part of them. The process is out of descriptors.
  void Thin();

 private:
  void Forget();
  void CloseOneOf(const std::string& source, std::string_view why);
  std::string Largest(size_t* count) const;

  const size_t most_, most_of_one_;
  std::list<std::weak_ptr<PendingConnection>> all_;  // the oldest first
};

}  // namespace muster::transport
