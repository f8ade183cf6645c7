// A gRPC server as every role runs it.
//
// Unary RPCs without a deadline are refused with a sentence (the health and reflection services
// excepted; session streams are bounded by heartbeats). Health (grpc.health.v1) and reflection are
// always there. A port belongs to one server: no SO_REUSEPORT.
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/rpc/credentials.h"
#include "muster/status.h"

namespace muster::rpc {

struct ServerOptions {
  std::string address;                               // "host:port"; port 0: the kernel picks
  Duration bind_timeout = std::chrono::seconds(10);  // a port in use is retried this long
  TlsFiles tls;
};

class Server {
 public:
  // Listens on `options.address`, or on all interfaces (one log line says so) where that name is no
  // local interface. The services must outlive the Server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services);
  ~Server();  // Shutdown(0)

  int port() const { return port_; }
  // Health says NOT_SERVING; calls under way may end within `grace`, then they are cancelled.
  // Returns when none is left. May be called twice.
  void Shutdown(Duration grace);

 private:
  Server() = default;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

// What a unary handler returns first, so that it does nothing for a caller without a deadline.
grpc::Status RequireDeadline(const grpc::ServerContextBase& context, const char* method);

}  // namespace muster::rpc
