// The gRPC server of the chief and of the ps tasks.
//
// Every server has the health (grpc.health.v1) and reflection services. In all other services, the
// server refuses unary RPCs without a deadline. Streams need no deadline. Two servers cannot share
// a port, because the sockets do not set SO_REUSEPORT.
//
// An Acceptor (acceptor.h) accepts connections and limits their number. A server with TLS also
// accepts plaintext connections, for Kubernetes probes. On these plaintext connections, the server
// offers only the health service.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/peer_text.h"
#include "common/rpc/channel.h"
#include "common/rpc/credentials.h"
#include "common/rpc/server/acceptor.h"
#include "muster/status.h"

namespace muster::rpc {

struct ServerOptions {
  std::string address;  // "host:port". With port 0, the kernel chooses the port.
  Duration bind_timeout = std::chrono::seconds(10);  // For retries while the port is in use.
  std::shared_ptr<security::Identity> identity;      // Null: plaintext.
  CallRule may_call;                                 // Ignored without an identity.
  int peers = 64;  // Number of client processes. Determines the connection limits (LimitsFor).
};

// The service for plaintext callers of a server with TLS. Every call fails with UNAUTHENTICATED.
class RefusalService : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  LogRateLimiter lines_{1, std::chrono::seconds(10)};
};

class Server {
 public:
  // Listens on `options.address`. If the address is not local, listens on all interfaces and logs
  // one line. The services must outlive the Server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services);
  ~Server();  // Calls Shutdown(0).

  int port() const { return port_; }
  Acceptor::Counts connections() const { return acceptor_->counts(); }
  std::string last_refusal() const { return acceptor_->last_refusal(); }
  // Stops accepting connections and sets the health status to NOT_SERVING. After `grace`, cancels
  // the calls that still run. Blocks until all calls have ended. Idempotent.
  void Shutdown(Duration grace);

 private:
  using Handler = std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>;

  Server() = default;
  absl::Status Build(const ServerOptions& options, const std::vector<grpc::Service*>& services);
  static void HandOver(const Handler& handler, Fd connection);

  // Members are destroyed in reverse order, so each member may use the members above it.
  std::unique_ptr<Acceptor> acceptor_;
  RefusalService refusal_;  // Used by plaintext_.
  Handler handler_, plaintext_handler_;
  std::unique_ptr<grpc::Server> server_, plaintext_;
  int port_ = 0;
};

// Returns INVALID_ARGUMENT if the caller has set no deadline. Handlers of unary calls begin with
// this check. A handler may lack the check. Server therefore repeats the check for unary calls when
// the handler sends its status. A caller then gets INVALID_ARGUMENT after the handler has run.
grpc::Status RequireDeadline(const grpc::ServerContextBase& context, const char* method);

}  // namespace muster::rpc
