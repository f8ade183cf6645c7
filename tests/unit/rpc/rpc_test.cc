// Tests servers and channels over loopback. Tests that need any RPC use the health service.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/rpc_method.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "common/rpc/channel.h"
#include "common/rpc/host.h"
#include "common/rpc/server/listen.h"
#include "common/rpc/server/server.h"
#include "proto/coordinator.grpc.pb.h"
#include "tests/unit/rpc/identities.h"

namespace muster::rpc {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kCall = std::chrono::minutes(1);  // The deadline of calls that are answered.

// A service whose handlers do not check deadlines.
class Careless final : public proto::Coordinator::CallbackService {
 public:
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const proto::StatusRequest*,
                                   proto::StatusReply* reply) override {
    reply->set_run_id("here");
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

absl::StatusOr<std::unique_ptr<Server>> StartOn(const std::string& address, Careless* service) {
  ServerOptions options;
  options.address = address;
  options.bind_timeout = std::chrono::milliseconds(300);
  return Server::Start(options, {service});
}

grpc::Status Ask(const std::string& address, grpc::ClientContext* context) {
  const auto stub = proto::Coordinator::NewStub(*MakeChannel(address));
  proto::StatusReply reply;
  return stub->Status(context, {}, &reply);
}

std::string Loopback(const Server& server) { return fmt::format("127.0.0.1:{}", server.port()); }
// The same port at another address of this host.
std::string Elsewhere(const Server& server) { return fmt::format("127.0.0.2:{}", server.port()); }

TEST(Rpc, AnswersACallWithADeadlineAndRefusesOneWithout) {
  Careless service;
  const auto server = StartOn("127.0.0.1:0", &service);
  ASSERT_TRUE(server.ok()) << Message(server.status());
  EXPECT_TRUE(Ask(Loopback(**server), WithDeadline(kCall).get()).ok());
  grpc::ClientContext without;
  const grpc::Status refused = Ask(Loopback(**server), &without);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused.error_message(),
            "/muster.proto.Coordinator/Status was called without a deadline: set one, so that no "
            "caller can wait for ever");
}

TEST(Rpc, NeverUsesAnHttpProxy) {
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy"})
    setenv(name, "http://127.0.0.1:1", 1);
  unsetenv("no_proxy");
  Careless service;
  const auto server = StartOn("127.0.0.1:0", &service);
  ASSERT_TRUE(server.ok());
  const grpc::Status status = Ask(Loopback(**server), WithDeadline(kCall).get());
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy"}) unsetenv(name);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST(Rpc, APortInUseIsAConfigurationErrorAfterTheRetry) {
  Careless first_service, second_service;
  const auto first = StartOn("127.0.0.1:0", &first_service);
  ASSERT_TRUE(first.ok());
  const MonotonicTime start = Clock::now();
  const auto second = StartOn(Loopback(**first), &second_service);
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(300));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(ExitCodeOf(second.status()), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(second.status())),
              HasSubstr("cannot listen on " + Loopback(**first) + ": the port is in use"));
}

TEST(Rpc, APortThatBecomesFreeInTimeIsTaken) {
  Careless first_service, second_service;
  auto first = StartOn("127.0.0.1:0", &first_service);
  ASSERT_TRUE(first.ok());
  const std::string address = Loopback(**first);
  std::thread release([&first] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    first->reset();
  });
  ServerOptions options;
  options.address = address;
  options.bind_timeout = std::chrono::minutes(1);
  const auto second = Server::Start(options, {&second_service});
  release.join();
  ASSERT_TRUE(second.ok()) << Message(second.status());
  EXPECT_EQ(Loopback(**second), address);
}

TEST(Rpc, ListensOnTheNamedInterfaceOnly) {
  const auto plan = PlanListen("127.0.0.1:0", std::chrono::seconds(0));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->addresses, std::vector<std::string>{"127.0.0.1:0"});
  EXPECT_THAT(plan->note, IsEmpty());
  Careless service;
  const auto server = StartOn("127.0.0.1:0", &service);
  ASSERT_TRUE(server.ok()) << Message(server.status());
  EXPECT_TRUE(Ask(Loopback(**server), WithDeadline(kCall).get()).ok());
  EXPECT_EQ(ProbeNamedPort(Elsewhere(**server), kCall), PortState::kRefused);
}

TEST(Rpc, ListensOnAllInterfacesWhereTheNameIsNotLocal) {
  // TEST-NET-1 belongs to nobody; .invalid never resolves.
  for (const char* name : {"192.0.2.1:0", "no-such-host.invalid:0"}) {
    const auto plan = PlanListen(name, std::chrono::seconds(0));
    ASSERT_TRUE(plan.ok()) << Message(plan.status());
    EXPECT_THAT(plan->note, HasSubstr("this process listens on all interfaces")) << name;
  }
  Careless service;
  const auto server = StartOn("192.0.2.1:0", &service);
  ASSERT_TRUE(server.ok()) << Message(server.status());
  EXPECT_TRUE(Ask(Loopback(**server), WithDeadline(kCall).get()).ok());
  EXPECT_EQ(ProbeNamedPort(Elsewhere(**server), kCall), PortState::kOpen);
}

// Calls a method for which there is no generated stub. An empty request is also health's for the
// whole server.
grpc::StatusCode AskFor(const std::string& method, const std::shared_ptr<grpc::Channel>& channel,
                        const std::string& request = "", std::string* answer = nullptr) {
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(channel);
  grpc::CompletionQueue queue;
  // The server requires no deadline for health. The test has one so that it ends.
  const auto context = WithDeadline(kCall);
  auto call = stub.PrepareCall(context.get(), method, &queue);
  void* tag;
  bool ok;
  grpc::Status status;
  call->StartCall(reinterpret_cast<void*>(1));
  EXPECT_TRUE(queue.Next(&tag, &ok));
  const grpc::Slice bytes(request);
  grpc::ByteBuffer message(&bytes, 1), reply;
  call->WriteLast(message, grpc::WriteOptions(), reinterpret_cast<void*>(2));
  EXPECT_TRUE(queue.Next(&tag, &ok));
  call->Read(&reply, reinterpret_cast<void*>(3));
  EXPECT_TRUE(queue.Next(&tag, &ok));
  call->Finish(&status, reinterpret_cast<void*>(4));
  EXPECT_TRUE(queue.Next(&tag, &ok));
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  if (answer != nullptr) {
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(reply.Dump(&slices).ok());
    for (const grpc::Slice& slice : slices)
      answer->append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return status.error_code();
}

constexpr const char* kHealth = "/grpc.health.v1.Health/Check";
constexpr const char* kReflection =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

TEST(Rpc, HealthAndReflectionAnswer) {
  Careless service;
  const auto server = StartOn("127.0.0.1:0", &service);
  ASSERT_TRUE(server.ok());
  const auto channel = *MakeChannel(Loopback(**server));
  EXPECT_EQ(AskFor(kHealth, channel), grpc::StatusCode::OK);
  const std::string list_services("\x3a\0", 2);  // ServerReflectionRequest with an empty field 7
  std::string services;
  EXPECT_EQ(AskFor(kReflection, channel, list_services, &services), grpc::StatusCode::OK);
  EXPECT_THAT(services, HasSubstr("muster.proto.Coordinator"));
}

// A connection counts as a peer's from its first call on. A call of health does not count.
TEST(Rpc, ACallTellsThatAConnectionIsAPeers) {
  Careless service;
  for (const char* address : {"127.0.0.1:0", "[::1]:0"}) {
    const auto server = StartOn(address, &service);
    ASSERT_TRUE(server.ok()) << Message(server.status());
    const std::string host = std::string(address).substr(0, std::string(address).rfind(':'));
    const auto channel = *MakeChannel(fmt::format("{}:{}", host, (*server)->port()));
    EXPECT_EQ(AskFor(kHealth, channel), grpc::StatusCode::OK);
    EXPECT_EQ((*server)->connections().strangers, 1);
    EXPECT_EQ(AskFor("/muster.proto.Coordinator/Status", channel), grpc::StatusCode::OK);
    EXPECT_EQ((*server)->connections().proven, 1) << address;
  }
}

// With TLS, the port answers health probes in plaintext, and no other plaintext call.
TEST(Rpc, WithTlsPlaintextGetsHealthAlone) {
  const TestIdentities identities;
  Careless service;
  ServerOptions options;
  options.address = "127.0.0.1:0";
  options.identity = identities.Of("chief:0");
  const auto server = Server::Start(options, {&service});
  ASSERT_TRUE(server.ok()) << Message(server.status());
  const auto plaintext = *MakeChannel(Loopback(**server));
  EXPECT_EQ(AskFor(kHealth, plaintext), grpc::StatusCode::OK);
  EXPECT_EQ(AskFor(kReflection, plaintext), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(AskFor("/muster.proto.Coordinator/Status", plaintext),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ((*server)->connections().proven, 0);
  EXPECT_EQ((*server)->connections().plaintext, 1);
  ChannelOptions secured;
  secured.identity = identities.Of("worker:0");
  secured.server_task = "chief:0";
  const auto channel = *MakeChannel(Loopback(**server), secured);
  EXPECT_EQ(AskFor("/muster.proto.Coordinator/Status", channel), grpc::StatusCode::OK);
  EXPECT_EQ(AskFor(kReflection, channel), grpc::StatusCode::OK);
  EXPECT_EQ((*server)->connections().proven, 1);
}

// A compressed message could be a thousand times as large after decompression.
TEST(Rpc, CompressedMessagesAreRefused) {
  Careless service;
  const auto server = StartOn("127.0.0.1:0", &service);
  ASSERT_TRUE(server.ok());
  // A channel without Muster's settings, like a stranger's.
  const auto channel =
      grpc::CreateChannel("dns:///" + Loopback(**server), grpc::InsecureChannelCredentials());
  proto::FailureReport report;
  report.set_message(std::string(8 << 20, ' '));
  proto::FailureReply reply;
  const auto context = WithDeadline(kCall);
  context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
  const grpc::Status status =
      proto::Coordinator::NewStub(channel)->ReportFailure(context.get(), report, &reply);
  EXPECT_THAT(status.error_message(), HasSubstr("is disabled"));
}

// The end of gRPC would wait for its threads, on the thread that releases the last channel.
TEST(Rpc, GrpcStaysUntilTheProcessEnds) {
  EXPECT_TRUE(MakeChannel("127.0.0.1:1").ok());
  EXPECT_TRUE(grpc_is_initialized());
}

TEST(Rpc, UnreachablePeersReadAsWhatTheyAre) {
  Careless service;
  std::string address;
  {
    const auto server = StartOn("127.0.0.1:0", &service);
    ASSERT_TRUE(server.ok());
    address = Loopback(**server);
  }
  const grpc::Status refused = Ask(address, WithDeadline(kCall).get());
  EXPECT_TRUE(IsUnreachable(refused));
  EXPECT_EQ(WhyUnreachable(refused), "connection refused");
  const grpc::Status nobody = Ask("no-such-host.invalid:1", WithDeadline(kCall).get());
  EXPECT_EQ(WhyUnreachable(nobody), "no such host name") << nobody.error_message();
  EXPECT_EQ(ExitCodeOf(FromGrpc(refused, "asking")), ExitCode::kRetryable);
}

}  // namespace
}  // namespace muster::rpc
