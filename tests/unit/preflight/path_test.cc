#include "deploy/preflight/path.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "deploy/preflight/sockets.h"

namespace muster::preflight {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kLimit = std::chrono::minutes(1);  // Of what is done in a moment.
constexpr PathMtu kMtu{.own = 1500, .found = 1500, .reported = 1500};

// Serves one receiver on a thread.
class PathTest : public testing::Test {
 protected:
  PathTest() : receiver_(Open()), thread_([this] { Serve(); }) {}
  ~PathTest() override { Stop(); }

  static PathReceiver Open() {
    auto receiver = PathReceiver::Open("127.0.0.1");
    EXPECT_TRUE(receiver.ok()) << receiver.status();
    return *std::move(receiver);
  }
  void Serve() {
    while (!ended_) receiver_.Serve(-1, Clock::now() + milliseconds(20));
  }
  // Only afterwards may a test read what the receiver has counted.
  void Stop() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
  }

  std::atomic<bool> ended_ = false;
  PathReceiver receiver_;
  std::thread thread_;
};

TEST_F(PathTest, LoopbackPassesThePacketsOfItsInterface) {
  // The timeout is that of a slow path, because answers come late on a busy machine.
  const auto mtu = ProbeMtu("127.0.0.1", receiver_.ports(), seconds(5), Clock::now() + kLimit);
  ASSERT_TRUE(mtu.ok()) << mtu.status();
  EXPECT_EQ(mtu->found, mtu->own);
  EXPECT_EQ(mtu->reported, mtu->own);
  EXPECT_GE(mtu->own, 1280);
}

TEST_F(PathTest, AnotherTokenGetsNoAnswer) {
  ProbePorts ports = receiver_.ports();
  ports.token[3] = static_cast<char>(ports.token[3] ^ 1);
  const auto mtu = ProbeMtu("127.0.0.1", ports, milliseconds(1), Clock::now() + kLimit);
  ASSERT_TRUE(mtu.ok()) << mtu.status();
  EXPECT_EQ(mtu->found, 0);
  EXPECT_TRUE(SendTransfer("127.0.0.1", ports, kMtu, Clock::now() + kLimit).ok());
  Stop();
  EXPECT_EQ(receiver_.received().bytes, 0);
}

TEST_F(PathTest, ATransferIsCountedAndEnds) {
  const MonotonicTime start = Clock::now();
  const absl::Status sent =
      SendTransfer("127.0.0.1", receiver_.ports(), kMtu, Clock::now() + 2 * kLimit);
  EXPECT_TRUE(sent.ok()) << sent;
  EXPECT_LT(Clock::now() - start, kLimit);
  Stop();
  EXPECT_GT(receiver_.received().bytes, 0);
  EXPECT_GT(receiver_.received().BitsPerSecond(), 1e6);
}

TEST_F(PathTest, ReceivesFewTransfers) {
  for (int i = 0; i < 8; ++i) {
    const auto list = Resolve("127.0.0.1:" + std::to_string(receiver_.ports().tcp), SOCK_STREAM, 0);
    ASSERT_TRUE(list.ok());
    const auto socket = ConnectTo(**list, {}, Clock::now() + kLimit);
    ASSERT_TRUE(socket.ok()) << socket.status();
    // The receiver closes one that does not begin with the token.
    EXPECT_TRUE(SendText(socket->get(), std::string(64, 'x'), Clock::now() + kLimit));
    EXPECT_EQ(ReceiveLine(socket->get(), Clock::now() + seconds(2)), "");
  }
  EXPECT_TRUE(SendTransfer("127.0.0.1", receiver_.ports(), kMtu, Clock::now() + kLimit).ok());
  Stop();
  EXPECT_EQ(receiver_.received().bytes, 0) << "a fifth connection is not counted";
}

TEST(ProbePortsTest, ComeBackFromJson) {
  const ProbePorts ports{.host = "::1",
                         .udp = 1,
                         .tcp = 65535,
                         .token = std::string("\0\x7f\xff", 3) + "0123456789abc"};
  const auto read = ProbePortsFromJson(ToJson(ports));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->token, ports.token);
  EXPECT_EQ(read->tcp, 65535);
  for (const char* key : {"udp", "tcp", "token"}) {
    Json wrong = ToJson(ports);
    wrong[key] = key == std::string("token") ? Json("00ff") : Json(70'000);
    EXPECT_FALSE(ProbePortsFromJson(wrong).ok()) << key;
  }
}

TEST(PathReceiverTest, NeedsAnAddressOfThisHost) {
  EXPECT_FALSE(PathReceiver::Open("").ok());
  EXPECT_FALSE(PathReceiver::Open("192.0.2.1").ok());
}

TEST(ProbeMtuTest, APathWithoutAnAnswerEndsInTime) {
  int port = 0;
  const auto silent = BindTo("127.0.0.1", SOCK_DGRAM, &port);
  ASSERT_TRUE(silent.ok());
  const ProbePorts ports{
      .host = "127.0.0.1", .udp = port, .tcp = port, .token = std::string(16, 'x')};
  const MonotonicTime start = Clock::now();
  const auto mtu = ProbeMtu("127.0.0.1", ports, milliseconds(1), start + 2 * kLimit);
  ASSERT_TRUE(mtu.ok()) << mtu.status();
  EXPECT_EQ(mtu->found, 0);
  EXPECT_LT(Clock::now() - start, kLimit);
}

}  // namespace
}  // namespace muster::preflight
