// Tests the accept loop over loopback. Each test takes the place of gRPC: it keeps or closes the
// connections that the acceptor hands over.
#include "common/rpc/server/acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/base/wait.h"
#include "common/rpc/server/sockets.h"
#include "tests/unit/base/failing_new.h"

namespace muster::rpc {
namespace {

using std::chrono::milliseconds;
using ::testing::Ge;

constexpr Duration kLong = std::chrono::minutes(1);

class AcceptorTest : public ::testing::Test {
 protected:
  // A busy machine may hold the test up between a connection and its first byte.
  static AcceptorOptions Options() {
    AcceptorOptions options;
    options.limits.first_byte = kLong;
    return options;
  }
  void Listen(const std::string& address = "127.0.0.1:0") {
    auto listeners = ListenOn({address}, &port_);
    ASSERT_TRUE(listeners.ok()) << Message(listeners.status());
    listeners_ = *std::move(listeners);
  }
  void Accept(const AcceptorOptions& options) {
    acceptor_ = Acceptor::Make(std::move(listeners_), options);
    ASSERT_TRUE(
        acceptor_->Start([this](Fd taken, bool plaintext) { Take(std::move(taken), plaintext); })
            .ok());
  }
  void Start(const AcceptorOptions& options, const std::string& address = "127.0.0.1:0") {
    Listen(address);
    Accept(options);
  }
  void Take(Fd taken, bool plaintext) {
    absl::MutexLock lock(&mu_);
    plaintext_.push_back(plaintext);
    taken_.push_back(std::move(taken));
    came_.SignalAll();
  }
  bool AwaitTaken(size_t count) {
    const MonotonicTime until = Clock::now() + kLong;
    absl::MutexLock lock(&mu_);
    while (taken_.size() < count)
      if (came_.WaitUntil(&mu_, until)) return false;
    return true;
  }
  // Closes a connection as gRPC does.
  void CloseTaken(size_t i) {
    absl::MutexLock lock(&mu_);
    shutdown(taken_[i].get(), SHUT_RDWR);
    taken_[i].Reset();
  }

  Fd Connect(const char* from = "127.0.0.1") {
    Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return ConnectWith(std::move(client), from);
  }
  Fd ConnectWith(Fd client, const char* from = "127.0.0.1") {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, from, &address.sin_addr);
    EXPECT_EQ(bind(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port_));
    EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return client;
  }
  // Connects, sends a byte and waits until the acceptor has handed the connection over.
  Fd Speak(const char* from = "127.0.0.1", char first = 'P') {
    const size_t before = Taken();
    Fd client = Connect(from);
    EXPECT_EQ(send(client.get(), &first, 1, MSG_NOSIGNAL), 1);
    EXPECT_TRUE(AwaitTaken(before + 1));
    return client;
  }
  Fd Proven(const char* from = "127.0.0.1") {
    Fd client = Speak(from);
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    getsockname(client.get(), reinterpret_cast<sockaddr*>(&own), &size);
    acceptor_->Proved("ipv4:" + NumericAddress(own));
    return client;
  }
  size_t Taken() {
    absl::MutexLock lock(&mu_);
    return taken_.size();
  }
  // Returns whether the acceptor closes the connection within this time.
  static bool Closed(const Fd& client, Duration within = kLong) {
    pollfd wait{client.get(), POLLIN, 0};
    char byte;
    return poll(&wait, 1, static_cast<int>(std::chrono::ceil<milliseconds>(within).count())) == 1 &&
           recv(client.get(), &byte, 1, MSG_DONTWAIT) <= 0;
  }
  // Waits until `met` returns true, because the acceptor updates its counts on its own thread.
  bool Await(const std::function<bool(const Acceptor::Counts&)>& met) {
    for (const MonotonicTime until = Clock::now() + kLong; Clock::now() < until;) {
      if (met(acceptor_->counts())) return true;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return false;
  }

  std::unique_ptr<Acceptor> acceptor_;
  std::vector<Fd> listeners_;  // Until Accept.
  int port_ = 0;
  absl::Mutex mu_;
  CondVar came_;
  std::vector<Fd> taken_ ABSL_GUARDED_BY(mu_);
  std::vector<bool> plaintext_ ABSL_GUARDED_BY(mu_);
};

TEST_F(AcceptorTest, WhatSaysNothingIsClosed) {
  AcceptorOptions options;
  options.limits.first_byte = milliseconds(100);
  Start(options);
  const MonotonicTime start = Clock::now();
  const Fd silent = Connect();
  EXPECT_TRUE(Closed(silent));
  EXPECT_GE(Clock::now() - start, milliseconds(90));
  EXPECT_EQ(acceptor_->counts().silent, 1);
  EXPECT_EQ(acceptor_->counts().strangers, 0);
  EXPECT_EQ(Taken(), 0u);
}

TEST_F(AcceptorTest, WhatSpeaksIsHandedOverWithAllThatItSaid) {
  AcceptorOptions options;
  options.limits.first_byte = milliseconds(50);
  Listen();
  const Fd client = Connect();
  EXPECT_EQ(send(client.get(), "X", 1, MSG_NOSIGNAL), 1);
  Accept(options);
  ASSERT_TRUE(AwaitTaken(1));
  EXPECT_FALSE(Closed(client, milliseconds(150)));  // Longer than the limit for the first byte.
  absl::MutexLock lock(&mu_);
  char first = 0;
  EXPECT_EQ(recv(taken_[0].get(), &first, 1, MSG_DONTWAIT), 1);
  EXPECT_EQ(first, 'X');
  EXPECT_TRUE(fcntl(taken_[0].get(), F_GETFL) & O_NONBLOCK);
}

TEST_F(AcceptorTest, TheEndOfAConnectionIsNoticed) {
  Start(Options());
  const Fd first = Proven(), second = Speak();
  EXPECT_EQ(acceptor_->counts().proven, 1);
  EXPECT_EQ(acceptor_->counts().strangers, 1);
  CloseTaken(0);
  EXPECT_TRUE(Closed(first));  // The acceptor's own descriptor does not keep it open.
  CloseTaken(1);
  EXPECT_TRUE(Closed(second));
  EXPECT_TRUE(Await([](const auto& counts) { return counts.proven + counts.strangers == 0; }));
}

TEST_F(AcceptorTest, TheOldestStrangerGivesWay) {
  AcceptorOptions options = Options();
  options.limits.max_strangers = 3;
  Start(options);
  const Fd peer = Proven();
  const Fd first = Speak(), second = Connect(), third = Speak(), fourth = Speak();
  EXPECT_TRUE(Closed(first));
  EXPECT_EQ(acceptor_->counts().evicted, 1);
  EXPECT_EQ(acceptor_->counts().strangers, 3);
  const Fd fifth = Speak();
  EXPECT_TRUE(Closed(second));
  for (const Fd* stays : {&peer, &third, &fourth, &fifth})
    EXPECT_FALSE(Closed(*stays, milliseconds(20)));
}

TEST_F(AcceptorTest, TheSourceWithMostStrangersGivesWay) {
  AcceptorOptions options = Options();
  options.limits.max_strangers = 4;
  Start(options);
  const Fd quiet = Speak("127.0.0.2");
  std::vector<Fd> crowd;
  for (int i = 0; i < 10; ++i) crowd.push_back(Speak("127.0.0.3"));
  EXPECT_FALSE(Closed(quiet, milliseconds(20)));
  EXPECT_EQ(acceptor_->counts().evicted, 7);
}

TEST_F(AcceptorTest, NobodyWhoIsProvenGivesWay) {
  AcceptorOptions options = Options();
  options.limits.most = 4;
  Start(options);
  std::vector<Fd> peers;
  for (int i = 0; i < 3; ++i) peers.push_back(Proven());
  const Fd stranger = Speak();
  peers.push_back(Proven());
  EXPECT_TRUE(Closed(stranger));
  const Fd pending = Connect();
  EXPECT_TRUE(Closed(pending));
  EXPECT_EQ(acceptor_->counts().turned_away, 1);
  for (const Fd& peer : peers) EXPECT_FALSE(Closed(peer, milliseconds(5)));
  CloseTaken(0);
  ASSERT_TRUE(Await([](const auto& counts) { return counts.proven == 3; }));
  const Fd later = Proven();
  EXPECT_EQ(acceptor_->counts().proven, 4);
}

TEST_F(AcceptorTest, WithoutTlsOneSourceDoesNotTakeAllThereIs) {
  AcceptorOptions options = Options();
  options.limits.most = 6;
  options.limits.max_per_source = 4;
  Start(options);
  std::vector<Fd> crowd;
  for (int i = 0; i < 4; ++i) crowd.push_back(Proven("127.0.0.3"));
  const Fd more = Connect("127.0.0.3");
  EXPECT_TRUE(Closed(more));
  const Fd member = Proven("127.0.0.2");
  EXPECT_EQ(acceptor_->counts().proven, 5);
}

TEST_F(AcceptorTest, WithTlsTheFirstByteTellsPlaintext) {
  AcceptorOptions options = Options();
  options.tls = true;
  options.limits.max_plaintext = 2;
  Start(options);
  const Fd tls = Speak("127.0.0.1", 0x16), first = Speak(), second = Speak(), third = Speak();
  EXPECT_TRUE(Closed(first));
  EXPECT_EQ(acceptor_->counts().plaintext, 2);
  absl::MutexLock lock(&mu_);
  EXPECT_THAT(plaintext_, ::testing::ElementsAre(false, true, true, true));
}

TEST_F(AcceptorTest, AMissingDescriptorCostsOneConnectionAndNoTime) {
  Start(Options());
  const Fd before = Speak();
  std::vector<Fd> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  Fd highest(open("/dev/null", O_RDONLY | O_CLOEXEC));
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit full{static_cast<rlim_t>(highest.get()) + 1, limit.rlim_max};
  // Uses the free descriptors below the highest one.
  std::vector<Fd> fill;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &full), 0);
  for (Fd next(dup(0)); next; next = Fd(dup(0))) fill.push_back(std::move(next));
  for (Fd& client : clients) client = ConnectWith(std::move(client));
  for (const Fd& client : clients) EXPECT_TRUE(Closed(client));
  EXPECT_GE(acceptor_->counts().failed, 3);
  rusage start{}, end{};
  getrusage(RUSAGE_SELF, &start);
  std::this_thread::sleep_for(milliseconds(300));
  getrusage(RUSAGE_SELF, &end);
  const auto micros = [](const rusage& u) {
    return u.ru_utime.tv_sec * 1000000 + u.ru_utime.tv_usec + u.ru_stime.tv_sec * 1000000 +
           u.ru_stime.tv_usec;
  };
  EXPECT_LT(micros(end) - micros(start), 100000);  // The wait takes 300 ms.
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  const Fd after = Speak();
  EXPECT_FALSE(Closed(before, milliseconds(20)));
}

// Whichever allocation fails, its connection is closed or handed over, and leaves nothing behind.
TEST_F(AcceptorTest, AFailedAllocationCostsOneConnection) {
  AcceptorOptions options = Options();
  options.tls = true;
  Start(options);
  {
    absl::MutexLock lock(&mu_);
    taken_.reserve(100);
    plaintext_.reserve(100);
  }
  int failed = 0;
  for (int nth = 1; nth <= 20; ++nth) {
    const muster::testing::FailingNew failing({.thread = "acceptor", .nth = nth});
    const Fd client = Connect();
    const char first = 0x16;
    (void)send(client.get(), &first, 1, MSG_NOSIGNAL);
    ASSERT_TRUE(Await([&](const auto& counts) {
      return counts.failed + static_cast<int64_t>(Taken()) == nth;
    })) << nth;
    failed += failing.failed();
  }
  EXPECT_GE(failed, 6);
  const int taken = static_cast<int>(Taken());
  EXPECT_EQ(acceptor_->counts().failed, failed);
  const Fd after = Speak("127.0.0.1", 0x16);
  EXPECT_FALSE(Closed(after, milliseconds(20)));
  for (int i = 0; i <= taken; ++i) CloseTaken(static_cast<size_t>(i));
  EXPECT_TRUE(Await([](const auto& counts) { return counts.strangers == 0; }));
}

TEST_F(AcceptorTest, ThePortIsFreeOnceItHasStopped) {
  Start(Options());
  const Fd waiting = Connect(), taken = Speak();
  acceptor_->Stop();
  EXPECT_TRUE(Closed(waiting));
  EXPECT_FALSE(Closed(taken, milliseconds(20)));
  int port = 0;
  EXPECT_TRUE(ListenOn({"127.0.0.1:" + std::to_string(port_)}, &port).ok());
}

TEST_F(AcceptorTest, BothAddressFamiliesOnOneSocket) {
  Start(Options(), "[::]:0");
  const Fd client = Proven();  // Connects over IPv4.
  EXPECT_EQ(acceptor_->counts().proven, 1);
}

TEST(ConnectionLimitsTest, ComeFromDescriptorsAndPeers) {
  EXPECT_EQ(LimitsFor(64, 2).most, 16);
  EXPECT_EQ(LimitsFor(1024, 2).most, 256);
  EXPECT_EQ(LimitsFor(1 << 20, 2).most, 1024);
  EXPECT_EQ(LimitsFor(1 << 20, 2000).most, 8000);
  EXPECT_EQ(LimitsFor(INT64_MAX, 2).most, 1024);
  const ConnectionLimits least = LimitsFor(32, 2);
  EXPECT_THAT(least.max_per_source, Ge(6));
  EXPECT_THAT(least.max_strangers, Ge(4));
}

TEST(SocketsTest, PeersAreNamedAsGrpcNamesThem) {
  EXPECT_EQ(PeerAddress("ipv4:10.0.0.1:80"), "10.0.0.1:80");
  EXPECT_EQ(PeerAddress("ipv6:%5B::1%5D:80"), "[::1]:80");
  EXPECT_EQ(PeerAddress("ipv6:%5Bfe80::1%25eth0%5D:80"), "[fe80::1]:80");
  sockaddr_storage storage{};
  auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(80);
  inet_pton(AF_INET6, "::ffff:10.0.0.1", &v6.sin6_addr);
  EXPECT_EQ(NumericAddress(storage), "10.0.0.1:80");
  EXPECT_EQ(SourceOf(storage), "10.0.0.1");
  inet_pton(AF_INET6, "2001:db8:1:2:3:4:5:6", &v6.sin6_addr);
  EXPECT_EQ(NumericAddress(storage), "[2001:db8:1:2:3:4:5:6]:80");
  EXPECT_EQ(SourceOf(storage), "2001:db8:1:2::/64");
}

}  // namespace
}  // namespace muster::rpc
