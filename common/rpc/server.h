// The gRPC server of every role.
//
// The server refuses unary RPCs without a deadline, except those of the health and reflection
// services. Streams need no deadline: heartbeats bound the session streams. Every server has the
// health (grpc.health.v1) and reflection services. Two servers cannot share a port, because the
// sockets do not set SO_REUSEPORT.
//
// An Acceptor (acceptor.h) accepts connections and limits their number. With TLS, plaintext
// connections can only call the health service, so Kubernetes can probe the port.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/peer_text.h"
#include "common/rpc/acceptor.h"
#include "common/rpc/channel.h"
#include "common/rpc/credentials.h"
#include "muster/status.h"

namespace muster::rpc {

struct ServerOptions {
  std::string address;  // "host:port". With port 0, the kernel chooses the port.
  Duration bind_timeout = std::chrono::seconds(10);  // For retries while the port is in use.
  std::shared_ptr<security::Identity> identity;      // Null: plaintext.
  CallRule may_call;                                 // Ignored without an identity.
  int peers = 64;  // The number of client processes, from which connection limits follow.
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
  // Listens on `options.address`. If that is no local address, listens on all interfaces and logs
  // one line. The services must outlive the Server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services);
  ~Server();  // Calls Shutdown(0).

  int port() const { return port_; }
  Acceptor::Counts connections() const { return acceptor_->counts(); }
  std::string last_refusal() const { return acceptor_->last_refusal(); }
  // Sets the health status to NOT_SERVING. Running calls may end within `grace`; after that they
  // are cancelled. Blocks until all calls have ended. Idempotent.
  void Shutdown(Duration grace);

 private:
  using Handler = std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>;

  Server() = default;
  absl::Status Build(const ServerOptions& options, const std::vector<grpc::Service*>& services);
  static void HandOver(const Handler& handler, Fd connection);

  // Members are destroyed in reverse order, so each one may use those above it.
  std::unique_ptr<Acceptor> acceptor_;
  RefusalService refusal_;  // Used by plaintext_.
  Handler handler_, plaintext_handler_;
  std::unique_ptr<grpc::Server> server_, plaintext_;
  int port_ = 0;
};

// Returns INVALID_ARGUMENT if the caller has set no deadline. A unary handler checks this first, so
// it does no work for such a caller.
grpc::Status RequireDeadline(const grpc::ServerContextBase& context, const char* method);
// Returns the result of `work`, or an error if it throws. gRPC does not catch exceptions of
// reactors. With Guarded, a lack of memory or threads fails only this call.
grpc::Status Guarded(const std::function<grpc::Status()>& work);

}  // namespace muster::rpc
