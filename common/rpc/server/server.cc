#include "common/rpc/server/server.h"

#include <fmt/format.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/support/server_interceptor.h>
#include <sys/resource.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <thread>

#include "common/base/files/descriptors.h"
#include "common/base/logging.h"
#include "common/base/peer_text.h"
#include "common/base/process/memory.h"
#include "common/base/suppressed.h"
#include "common/rpc/channel.h"
#include "common/rpc/library.h"
#include "common/rpc/server/listen.h"
#include "common/rpc/server/sockets.h"

namespace muster::rpc {
namespace {

namespace ge = grpc::experimental;

// A call without a deadline has one that is years away.
bool HasDeadline(const grpc::ServerContextBase& context) {
  return context.deadline() < std::chrono::system_clock::now() + std::chrono::hours(24 * 365);
}

// Applies RequireDeadline to all unary calls, in case a handler does not. A caller without a
// deadline gets the refusal as the status, whatever the handler returned.
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

// Returns whether every caller may call `method`.
bool IsPublicMethod(std::string_view method) {
  return method.starts_with("/grpc.health.") || method.starts_with("/grpc.reflection.");
}

// Runs before each call. A call that not everybody may make proves the connection (Acceptor).
class InterceptorFactory : public ge::ServerInterceptorFactoryInterface {
 public:
  explicit InterceptorFactory(Acceptor* acceptor) : acceptor_(acceptor) {}
  ge::Interceptor* CreateServerInterceptor(ge::ServerRpcInfo* info) override {
    if (IsPublicMethod(info->method())) return nullptr;
    acceptor_->Proved(info->server_context()->peer());
    return info->type() == ge::ServerRpcInfo::Type::UNARY ? new DeadlineInterceptor(info) : nullptr;
  }

 private:
  Acceptor* acceptor_;
};

// Removes the reflection plugin, which gRPC adds to all servers of a process.
class WithoutReflection : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->clear();
  }
};

void InitPluginsOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    RetainGrpc();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

constexpr uint64_t kMinQuota = 16 << 20, kMaxQuota = 256 << 20;
constexpr int kMaxThreads = 64;
constexpr int kMaxHeaderBytes = 8 << 10;
// A member has one session and a few other calls at the same time.
constexpr int kMaxCallsOfConnection = 64;
// The timeout for the TLS handshake and the first HTTP/2 frame. Members need milliseconds.
constexpr Duration kHandshake = std::chrono::seconds(10);
// A connection without a call for this time is closed. A channel reconnects for its next call.
constexpr Duration kIdle = std::chrono::minutes(1);

// Limits the memory and the threads of all servers of this process together. Beyond the memory
// limit, gRPC reads no data and accepts no connection until calls have freed memory. The thread
// limit applies to synchronous services.
const grpc::ResourceQuota& Quota() {
  static const auto* const quota = [] {
    auto* made = new grpc::ResourceQuota("muster");
    // gRPC counts a message only after it has received all of it, so the quota must be small.
    uint64_t memory = AvailableMemory();
    for (const auto which : {RLIMIT_DATA, RLIMIT_AS}) {
      rlimit limit{};
      if (getrlimit(which, &limit) == 0) memory = std::min<uint64_t>(memory, limit.rlim_cur);
    }
    made->Resize(std::clamp<uint64_t>(memory / 8, kMinQuota, kMaxQuota));
    made->SetMaxThreads(kMaxThreads);
    return made;
  }();
  return *quota;
}

void Configure(grpc::ServerBuilder& builder, int max_request_bytes) {
  builder.SetResourceQuota(Quota());
  // A small compressed message may be large when decompressed, and gRPC checks its size too late.
  // No part of Muster compresses.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxHeaderBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsOfConnection);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(kKeepalive));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(kKeepaliveTimeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Milliseconds(kMinPingInterval));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(kHandshake));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(kIdle));
  builder.SetMaxReceiveMessageSize(max_request_bytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
}

}  // namespace

grpc::Status RequireDeadline(const grpc::ServerContextBase& context, const char* method) {
  if (HasDeadline(context)) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                      fmt::format("{} was called without a deadline: set one, so that no caller "
                                  "can wait for ever",
                                  method));
}

grpc::ServerGenericBidiReactor* RefusalService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  if (int64_t before = 0; lines_.Take(&before))
    LogWarning(
        "{} called {} and was refused: it speaks plaintext, which only health checks may use{}",
        PeerAddress(context->peer()), SanitizePeerText(context->method(), 100),
        SuppressedText(before));
  class Refusal : public grpc::ServerGenericBidiReactor {
   public:
    Refusal() {
      Finish(grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                          "the tasks of this cluster prove their identity: give this one the run "
                          "key or a certificate too"));
    }
    void OnDone() override { delete this; }
  };
  return new Refusal;
}

absl::Status Server::Build(const ServerOptions& options,
                           const std::vector<grpc::Service*>& services) {
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  auto credentials = ServerCredentialsFor(options.identity, options.may_call);
  grpc::ServerBuilder builder;
  Configure(builder, kMaxRequestBytes);
  std::vector<std::unique_ptr<ge::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<InterceptorFactory>(acceptor_.get()));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  handler_ = builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, credentials);
  for (grpc::Service* service : services) builder.RegisterService(service);
  server_ = builder.BuildAndStart();
  if (options.identity != nullptr) {
    grpc::ServerBuilder plaintext;
    Configure(plaintext, kMaxHeaderBytes);
    plaintext.SetOption(std::make_unique<WithoutReflection>());
    plaintext.RegisterCallbackGenericService(&refusal_);
    plaintext_handler_ = plaintext.experimental().AddExternalConnectionAcceptor(
        Type::FROM_FD, grpc::InsecureServerCredentials());
    plaintext_ = plaintext.BuildAndStart();
  }
  if (server_ == nullptr || (options.identity != nullptr && plaintext_ == nullptr))
    return ConfigurationError(
        fmt::format("cannot serve on {}: gRPC refuses its configuration", options.address));
  return absl::OkStatus();
}

void Server::HandOver(const Handler& handler, Fd connection) {
  ge::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.fd = connection.Release();
  handler->HandleNewConnection(&parameters);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services) {
  InitPluginsOnce();
  const MonotonicTime give_up = Clock::now() + options.bind_timeout;
  ListenPlan plan;
  std::unique_ptr<Server> server(new Server);
  absl::StatusOr<std::vector<Fd>> listeners;
  while (true) {
    MUSTER_ASSIGN_OR_RETURN(plan, PlanListen(options.address, give_up - Clock::now()));
    listeners = ListenOn(plan.addresses, &server->port_);
    if (listeners.ok()) break;
    // Another process has bound the port after PlanListen.
    if (Clock::now() >= give_up)
      return ConfigurationError(
          fmt::format("cannot listen on {}: {}", options.address, Message(listeners.status())));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  server->acceptor_ =
      Acceptor::Make(*std::move(listeners), {.limits = LimitsFor(DescriptorLimit(), options.peers),
                                             .tls = options.identity != nullptr,
                                             .name = options.address});
  MUSTER_RETURN_IF_ERROR(server->Build(options, services));
  MUSTER_RETURN_IF_ERROR(
      server->acceptor_->Start([server = server.get()](Fd connection, bool plaintext) {
        HandOver(plaintext ? server->plaintext_handler_ : server->handler_, std::move(connection));
      }));
  if (!plan.note.empty()) LogInfo("{}", plan.note);
  return server;
}

void Server::Shutdown(Duration grace) {
  if (server_ == nullptr) return;
  acceptor_->Stop();
  const auto until = std::chrono::system_clock::now() +
                     std::chrono::duration_cast<std::chrono::system_clock::duration>(grace);
  for (grpc::Server* server : {server_.get(), plaintext_.get()}) {
    if (server == nullptr) continue;
    if (auto* health = server->GetHealthCheckService()) health->SetServingStatus(false);
    server->Shutdown(until);
    server->Wait();
  }
  server_.reset();
  plaintext_.reset();
}

Server::~Server() { Shutdown(Duration::zero()); }

}  // namespace muster::rpc
