// Tests that many connections of strangers take little from a listener and nothing from others.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <thread>
#include <vector>

#include "tests/unit/base/failing_new.h"
#include "tests/unit/base/logged_lines.h"
#include "tests/unit/transport/listeners.h"
#include "tests/unit/transport/test_authority.h"

namespace muster::transport {
namespace {

using ::testing::HasSubstr;
using testing::TestAuthority;

// Sets the limit of descriptors during its life.
class Descriptors {
 public:
  explicit Descriptors(rlim_t most) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = std::min(most, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
    most_ = limit.rlim_cur;
  }
  ~Descriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  size_t most() const { return most_; }

 private:
  rlimit before_{};
  size_t most_ = 0;
};

class Sockets {
 public:
  ~Sockets() {
    for (const int fd : all_) close(fd);
  }
  int Add(int fd) { return all_.emplace_back(fd); }
  size_t size() const { return all_.size(); }

 private:
  std::vector<int> all_;
};

class StrangersTest : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<DataListener> ListenAs(const std::string& task, ListenerOptions options = {}) {
    if (GetParam()) options.security = authority_.Issue(task);
    return Listen(options);
  }
  TestAuthority authority_;
};
INSTANTIATE_TEST_SUITE_P(, StrangersTest, ::testing::Bool(),
                         [](const auto& run) { return run.param ? "Tls" : "Plain"; });

TEST_P(StrangersTest, TenThousandIdleConnectionsKeepNobodyOut) {
  const Descriptors descriptors(10'600);
  const size_t count = std::min<size_t>(10'000, descriptors.most() - 600);
  const auto a = ListenAs("chief:0"), b = ListenAs("worker:1");
  const auto admission = a->Admit(1, 0, "ticket");
  Sockets idle;
  std::vector<std::unique_ptr<Dialing>> dials;
  for (size_t i = 0; i < count; ++i) {
    const int fd = idle.Add(RawConnect(a->address()));
    ASSERT_GE(fd, 0) << i;
    if (i % (count / 10) == 0) {
      dials.push_back(b->Dial(To(*a, {1, static_cast<int>(i) + 1, 0, 0, "ticket"})));
    }
  }
  dials.push_back(b->Dial(To(*a, {1, 1'000'000, 0, 0, "ticket"})));
  for (const auto& dialing : dials) {
    const auto result = Await(*b, *dialing);
    EXPECT_TRUE(result.ok()) << result.status();
  }
  RecordProperty("idle", static_cast<int>(idle.size()));
}

TEST_P(StrangersTest, ThoseOfOneAddressCloseOnlyTheirOwn) {
  const auto a =
      ListenAs("chief:0", {.hello_timeout = kLong, .max_silent = 16, .max_silent_each = 8});
  const auto admission = a->Admit(1, 0, "ticket");
  Sockets sockets;
  const int honest = sockets.Add(RawConnect(a->address(), "127.0.0.2"));
  for (const char* const source : {"127.0.0.3", "127.0.0.4", "127.0.0.5"})
    for (int i = 0; i < 40; ++i) sockets.Add(RawConnect(a->address(), source));
  // Another dial comes after all of them, and completes after them.
  const auto b = ListenAs("worker:1");
  const auto dialing = b->Dial(To(*a, {1, 1, 0, 0, "ticket"}));
  EXPECT_TRUE(Await(*b, *dialing).ok());
  EXPECT_FALSE(IsClosed(honest, 50));
}

TEST_P(StrangersTest, WhoHasShownSomethingStaysWhileOthersAreSilent) {
  const auto a =
      ListenAs("chief:0", {.hello_timeout = kLong, .max_silent = 8, .max_silent_each = 8});
  Sockets sockets;
  const int speaks = sockets.Add(RawConnect(a->address()));
  const unsigned char tls[] = {0x16, 3, 1, 1, 0};
  const auto hello = EncodeHello({1, 1, 0, 0, "ticket"});
  const void* const first = GetParam() ? static_cast<const void*>(tls) : hello.data();
  ASSERT_EQ(send(speaks, first, 5, MSG_NOSIGNAL), 5);
  for (int i = 0; i < 40; ++i) sockets.Add(RawConnect(a->address()));
  const auto admission = a->Admit(1, 0, "ticket");
  const auto b = ListenAs("worker:1");
  const auto dialing = b->Dial(To(*a, {1, 1, 0, 0, "ticket"}));
  EXPECT_TRUE(Await(*b, *dialing).ok());
  EXPECT_FALSE(IsClosed(speaks, 50));
}

TEST_P(StrangersTest, OneThatStopsWithinTheHandshakeIsClosedInTime) {
  const auto a = ListenAs("chief:0", {.hello_timeout = std::chrono::milliseconds(200)});
  Sockets sockets;
  const int fd = sockets.Add(RawConnect(a->address()));
  const unsigned char tls[] = {0x16, 3, 1, 1, 0, 1, 0, 0, 0xfc, 3, 3};
  ASSERT_GT(send(fd, tls, sizeof tls, MSG_NOSIGNAL), 0);
  EXPECT_TRUE(IsClosed(fd, 20'000));
}

TEST_P(StrangersTest, FewDescriptorsAreNotAllForThem) {
  Sockets idle;
  const Descriptors enough(1024);
  std::vector<int> far;  // Descriptors above the limit that the listeners will have.
  for (int i = 0; i < 100; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    far.push_back(idle.Add(fcntl(fd, F_DUPFD_CLOEXEC, 300)));
    close(fd);
    ASSERT_GE(far.back(), 300);
  }
  const Descriptors few(64);
  const auto a = ListenAs("chief:0"), b = ListenAs("worker:1");
  const auto admission = a->Admit(1, 0, "ticket");
  const Endpoint endpoint = *ParseEndpoint(a->address());
  sockaddr_in other{};
  other.sin_family = AF_INET;
  other.sin_port = htons(endpoint.port);
  inet_pton(AF_INET, endpoint.host.c_str(), &other.sin_addr);
  for (const int fd : far)
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&other), sizeof other), 0);
  for (int i = 0; i < 5; ++i) {
    const auto dialing = b->Dial(To(*a, {1, i + 1, 0, 0, "ticket"}));
    const auto result = Await(*b, *dialing);
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_NE(AwaitTake(*a, *admission, i + 1), nullptr);
  }
}

// Whichever allocation fails, its connection is closed or served, and the port stays open.
TEST(MemoryTest, AFailedAllocationCostsOneConnection) {
  const auto a = Listen();
  const auto admission = a->Admit(1, 0, "ticket");
  int failed = 0;
  for (int nth = 1; nth <= 20; ++nth) {
    const testing::FailingNew failing({.thread = "data-listener", .nth = nth});
    Sockets sockets;
    const int fd = sockets.Add(RawConnect(a->address()));
    const auto hello = EncodeHello({1, nth, 0, 0, "ticket"});
    (void)send(fd, hello.data(), hello.size(), MSG_NOSIGNAL);
    pollfd polled{fd, POLLIN, 0};
    ASSERT_EQ(poll(&polled, 1, 20'000), 1) << nth;
    failed += failing.failed();
  }
  EXPECT_GE(failed, 4);
  const auto b = Listen();
  const auto dialing = b->Dial(To(*a, {1, 100, 0, 0, "ticket"}));
  const auto result = Await(*b, *dialing);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_NE(AwaitTake(*a, *admission, 100), nullptr);
}

// The dial returns the error. If asio loses the error, the dial ends at its deadline.
TEST(MemoryTest, ADialThatFindsNoneEnds) {
  Sockets sockets;
  const int silent = sockets.Add(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof own;
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&own), size), 0);
  ASSERT_EQ(listen(silent, 100), 0);
  ASSERT_EQ(getsockname(silent, reinterpret_cast<sockaddr*>(&own), &size), 0);
  const auto dialer = Listen();
  int failed = 0;
  for (int nth = 1; nth <= 10; ++nth) {
    const testing::FailingNew failing({.thread = "data-listener", .nth = nth});
    const auto dialing = dialer->Dial({JoinEndpoint("127.0.0.1", ntohs(own.sin_port)),
                                       {1, nth, 0, 0, "ticket"},
                                       Clock::now() + std::chrono::milliseconds(200)});
    const absl::Status status = Await(*dialer, *dialing).status();
    ASSERT_NE(Message(status), "still under way") << nth;
    failed += failing.failed();
  }
  // The order of the threads decides which step of the dial fails, and with which status.
  EXPECT_GE(failed, 1);
  const auto a = Listen();
  const auto admission = a->Admit(1, 0, "ticket");
  const auto dialing = dialer->Dial(To(*a, {1, 100, 0, 0, "ticket"}));
  EXPECT_TRUE(Await(*dialer, *dialing).ok());
}

TEST(MissingDescriptors, TheyMakeOneLineAWhile) {
  const auto a = Listen();
  Sockets sockets;
  const int client = sockets.Add(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Endpoint endpoint = *ParseEndpoint(a->address());
  sockaddr_in other{};
  other.sin_family = AF_INET;
  other.sin_port = htons(endpoint.port);
  inet_pton(AF_INET, endpoint.host.c_str(), &other.sin_addr);
  const testing::LoggedLines lines;
  const Descriptors none(3);
  ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(&other), sizeof other), 0);
  ASSERT_TRUE(lines.Await("cannot accept a data connection: Too many open files"));
  std::this_thread::sleep_for(std::chrono::milliseconds(350));  // The time of three attempts.
  EXPECT_EQ(lines.Count("cannot accept a data connection"), 1);
}

TEST(SignalTest, WithoutADescriptorItStillEndsAWait) {
  const auto a = Listen(), b = Listen();
  const auto admission = a->Admit(1, 0, "ticket");
  const auto dialing = b->Dial(To(*a, {1, 1, 0, 0, "ticket"}));
  const Result there = Await(*b, *dialing);
  ASSERT_TRUE(there.ok()) << there.status();
  std::optional<AbortSignal> abort;
  {
    const Descriptors none(3);
    abort.emplace();
  }
  ASSERT_LT(abort->fd(), 0);
  std::thread order([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    abort->Set();
  });
  std::byte byte;
  const MonotonicTime begin = Clock::now();
  const absl::Status status = (*there)->Exchange({}, {&byte, 1}, begin + kLong, *abort);
  order.join();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_LT(Clock::now() - begin, kLong / 2);
}

TEST_P(StrangersTest, AGenerationFarAheadIsRefused) {
  const auto a = ListenAs("chief:0"), b = ListenAs("worker:1");
  const auto admission = a->Admit((uint64_t{3} << 32) | 1, 0, "ticket");
  const auto far = b->Dial(To(*a, {uint64_t{0xfffffffe} << 32, 1, 0, 0, "ticket"}));
  EXPECT_THAT(std::string(Message(Await(*b, *far).status())), HasSubstr("does not expect"));
  const auto near = b->Dial(To(*a, {(uint64_t{5} << 32) | 7, 1, 0, 0, "ticket"}));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Await(*b, *near, std::chrono::milliseconds(50)).status()));
  const auto later = a->Admit((uint64_t{5} << 32) | 7, 0, "ticket");
  EXPECT_TRUE(Await(*b, *near).ok());
}

// Each task has its own share of the places for early connections.
TEST(HeldTest, ThoseOfOneTaskDoNotTakeThePlacesOfAnother) {
  TestAuthority authority;
  const ListenerOptions few{
      .max_held = 8, .max_held_each = 4, .security = authority.Issue("chief:0")};
  const auto a = Listen(few);
  const auto honest = Listen({.security = authority.Issue("worker:1")});
  const auto greedy = Listen({.security = authority.Issue("worker:2")});
  // Its deadline passes, because the listener holds it and does not refuse it.
  const auto early = honest->Dial(To(*a, {9, 1, 0, 0, "ticket"}));
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(Await(*honest, *early, std::chrono::milliseconds(50)).status()));
  std::vector<std::unique_ptr<Dialing>> many;
  for (uint32_t i = 0; i < 40; ++i)
    many.push_back(greedy->Dial(
        {a->address(), {9 + i, 2, 0, i, "ticket"}, Clock::now() + std::chrono::seconds(1)}));
  for (const auto& dialing : many) {
    const absl::Status status = Await(*greedy, *dialing).status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  }
  const auto admission = a->Admit(9, 0, "ticket");
  const auto seated = admission->TakeAny();
  ASSERT_NE(seated, nullptr) << "it was here all the time";
  EXPECT_EQ(seated->info().peer, "worker:1");
}

TEST(HeldTest, WithoutSecurityThoseOfOneAddressDoNot) {
  const auto a = Listen({.max_held = 8, .max_held_each = 4});
  Sockets sockets;
  const int honest = sockets.Add(RawConnect(a->address(), "127.0.0.2"));
  auto hello = EncodeHello({9, 1, 0, 0, "ticket"});
  ASSERT_GT(send(honest, hello.data(), hello.size(), MSG_NOSIGNAL), 0);
  std::vector<int> greedy;
  for (uint32_t i = 0; i < 40; ++i) {
    greedy.push_back(sockets.Add(RawConnect(a->address())));
    hello = EncodeHello({10 + i, 2, 0, i, "ticket"});
    ASSERT_GT(send(greedy.back(), hello.data(), hello.size(), MSG_NOSIGNAL), 0);
  }
  for (size_t i = 0; i < 30; ++i) EXPECT_TRUE(IsClosed(greedy[i], 20'000)) << i;
  EXPECT_FALSE(IsClosed(honest, 50));
}

}  // namespace
}  // namespace muster::transport
