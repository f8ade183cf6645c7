// A gRPC server as every role runs it.
//
// Unary RPCs without a deadline are refused with a sentence (the health and reflection services
// excepted; session streams are bounded by heartbeats). Health (grpc.health.v1) and reflection are
// always there. A port belongs to one server: no SO_REUSEPORT.
//
// Connections are accepted and bounded by an Acceptor (acceptor.h). With TLS, those that speak
// plaintext get the health service and nothing else, so that Kubernetes can probe the port.
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
  std::string address;                               // "host:port"; port 0: the kernel picks
  Duration bind_timeout = std::chrono::seconds(10);  // a port in use is retried this long
  std::shared_ptr<security::Identity> identity;      // null: plaintext
  CallRule may_call;                                 // with an identity
  int peers = 64;  // processes that may call: bounds the connections
};

// Answers every call that it needs an identity.
class RefusalService : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  LineBudget lines_{1, std::chrono::seconds(10)};
};

class Server {
 public:
  // Listens on `options.address`, or on all interfaces (one log line says so) where that name is no
  // local interface. The services must outlive the Server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services);
  ~Server();  // Shutdown(0)

  int port() const { return port_; }
  Acceptor::Counts connections() const { return acceptor_->counts(); }
  // Health says NOT_SERVING; calls under way may end within `grace`, then they are cancelled.
  // Returns when none is left. May be called twice.
  void Shutdown(Duration grace);

 private:
  using Handler = std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>;

  Server() = default;
  absl::Status Build(const ServerOptions& options, const std::vector<grpc::Service*>& services);
  static void HandOver(const Handler& handler, Fd connection);

  // In the order in which they are needed.
  std::unique_ptr<Acceptor> acceptor_;
  RefusalService refusal_;  // of the plaintext server: what is not health
  Handler handler_, plaintext_handler_;
  std::unique_ptr<grpc::Server> server_, plaintext_;
  int port_ = 0;
};

// What a unary handler returns first, so that it does nothing for a caller without a deadline.
grpc::Status RequireDeadline(const grpc::ServerContextBase& context, const char* method);
// What `work` says. Nobody catches what a reactor throws: here what there is no memory for, or no
// thread, costs that call alone.
grpc::Status Guarded(const std::function<grpc::Status()>& work);

}  // namespace muster::rpc
