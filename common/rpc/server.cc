#include "common/rpc/server.h"

#include <fmt/format.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/server_interceptor.h>

#include <mutex>
#include <string_view>
#include <thread>

#include "common/base/logging.h"
#include "common/rpc/channel.h"
#include "common/rpc/library.h"
#include "common/rpc/listen.h"

namespace muster::rpc {
namespace {

namespace ge = grpc::experimental;

// A deadline years away is none.
bool HasDeadline(const grpc::ServerContextBase& context) {
  return context.deadline() < std::chrono::system_clock::now() + std::chrono::hours(24 * 365);
}

// The safety net under RequireDeadline: whatever the handler answered, a unary caller without a
// deadline gets the refusal.
class DeadlineInterceptor : public ge::Interceptor {
 public:
  explicit DeadlineInterceptor(ge::ServerRpcInfo* info) : info_(info) {}
  void Intercept(ge::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(ge::InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status refusal = RequireDeadline(*info_->server_context(), info_->method());
      if (!refusal.ok()) methods->ModifySendStatus(refusal);
    }
    methods->Proceed();
  }

 private:
  ge::ServerRpcInfo* info_;
};

class DeadlineInterceptorFactory : public ge::ServerInterceptorFactoryInterface {
 public:
  ge::Interceptor* CreateServerInterceptor(ge::ServerRpcInfo* info) override {
    const std::string_view method = info->method();
    const bool exempt = info->type() != ge::ServerRpcInfo::Type::UNARY ||
                        method.find("/grpc.health.") == 0 || method.find("/grpc.reflection.") == 0;
    return exempt ? nullptr : new DeadlineInterceptor(info);
  }
};

void InitPluginsOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    KeepGrpc();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

int Milliseconds(Duration d) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(d).count());
}

void Configure(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(kKeepalive));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(kKeepaliveTimeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Milliseconds(kMinPingInterval));
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  std::vector<std::unique_ptr<ge::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<DeadlineInterceptorFactory>());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
}

}  // namespace

grpc::Status RequireDeadline(const grpc::ServerContextBase& context, const char* method) {
  if (HasDeadline(context)) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                      fmt::format("{} was called without a deadline: set one, so that no caller "
                                  "can wait for ever",
                                  method));
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services) {
  InitPluginsOnce();
  MUSTER_ASSIGN_OR_RETURN(auto credentials, ServerCredentialsFor(options.tls));
  const MonotonicTime give_up = Clock::now() + options.bind_timeout;
  while (true) {
    MUSTER_ASSIGN_OR_RETURN(const ListenPlan plan,
                            PlanListen(options.address, give_up - Clock::now()));
    grpc::ServerBuilder builder;
    Configure(builder);
    std::vector<int> ports(plan.addresses.size(), 0);
    for (size_t i = 0; i < ports.size(); ++i)
      builder.AddListeningPort(plan.addresses[i], credentials, &ports[i]);
    for (grpc::Service* service : services) builder.RegisterService(service);
    std::unique_ptr<Server> server(new Server);
    server->server_ = builder.BuildAndStart();
    if (server->server_ != nullptr && !ports.empty() && ports[0] != 0) {
      server->port_ = ports[0];
      if (!plan.note.empty()) LogInfo("{}", plan.note);
      return server;
    }
    // Another process was quicker between the look and the bind.
    if (Clock::now() >= give_up)
      return ConfigurationError(
          fmt::format("cannot listen on {}: the port was taken", options.address));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void Server::Shutdown(Duration grace) {
  if (server_ == nullptr) return;
  if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(false);
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(grace));
  server_->Wait();
  server_.reset();
}

Server::~Server() { Shutdown(Duration::zero()); }

}  // namespace muster::rpc
