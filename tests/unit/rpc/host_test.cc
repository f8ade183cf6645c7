#include "common/rpc/host.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "common/rpc/retry.h"

namespace muster::rpc {
namespace {

using ::testing::HasSubstr;

TEST(Host, AddressesAreSplitAndJoined) {
  EXPECT_EQ(SplitHostPort("host:22")->host, "host");
  EXPECT_EQ(SplitHostPort("[::1]:22")->host, "::1");
  EXPECT_EQ(SplitHostPort("[::1]:22")->port, 22);
  EXPECT_EQ(JoinHostPort("::1", 22), "[::1]:22");
  EXPECT_EQ(JoinHostPort("10.0.0.1", 0), "10.0.0.1:0");
  for (const char* bad : {"", "host", "host:", ":22", "host:x", "host:70000", "host:-1"})
    EXPECT_EQ(ExitCodeOf(SplitHostPort(bad).status()), ExitCode::kConfiguration) << bad;
}

TEST(Host, TheLocalAddressIsThatOfTheWayThere) {
  EXPECT_EQ(*LocalAddressTowards("127.0.0.1:1"), "127.0.0.1");
  EXPECT_EQ(*LocalAddressTowards("localhost:1"), *LocalAddressTowards("localhost:2"));
}

TEST(Host, ANameThatDoesNotResolveIsWorthAnotherTryUntilTheDeadline) {
  const auto once = LocalAddressTowards("no-such-host.invalid:1");
  EXPECT_EQ(ExitCodeOf(once.status()), ExitCode::kRetryable);
  const auto later =
      WaitForLocalAddressTowards("no-such-host.invalid:1", std::chrono::milliseconds(50));
  EXPECT_EQ(later.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(Message(later.status())), HasSubstr("'no-such-host.invalid'"));
}

TEST(Host, TheIdentityIsStableAndNamesTheCores) {
  EXPECT_EQ(ThisHost().id, ThisHost().id);
  EXPECT_FALSE(ThisHost().id.empty());
  EXPECT_FALSE(ThisHost().cpus.empty());
  EXPECT_EQ(ThisHost().pid, getpid());
}

TEST(Host, AProbeTellsAListeningPortFromARefusedOne) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string where = JoinHostPort("127.0.0.1", ntohs(address.sin_port));
  const auto state = [](const std::string& at) {
    return ProbePorts({at}, std::chrono::seconds(1)).at(0);
  };
  EXPECT_EQ(state(where), PortState::kOpen);
  close(fd);
  EXPECT_EQ(state(where), PortState::kRefused);
  EXPECT_EQ(state("nonsense"), PortState::kUnknown);
}

// Many hosts that lost power at the same time have such ports.
TEST(Host, ManySilentPortsAreProbedInTheTimeOfOne) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(fd, 0), 0);  // Only the first one or two connections are answered.
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  std::vector<std::string> where(64, JoinHostPort("127.0.0.1", ntohs(address.sin_port)));
  where.push_back("127.0.0.1:1");
  where.push_back("nonsense");
  const MonotonicTime start = Clock::now();
  const auto states = ProbePorts(where, std::chrono::milliseconds(500));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(15));  // One by one they need 30 s.
  ASSERT_EQ(states.size(), where.size());
  EXPECT_GT(std::count(states.begin(), states.begin() + 64, PortState::kUnknown), 55);
  EXPECT_EQ(states[64], PortState::kRefused);
  EXPECT_EQ(states[65], PortState::kUnknown);
  close(fd);
}

TEST(Retry, DelaysGrowToTheirBound) {
  Backoff backoff;
  Duration last = backoff.Next();
  EXPECT_GE(last, std::chrono::milliseconds(40));
  EXPECT_LE(last, std::chrono::milliseconds(60));
  for (int i = 0; i < 20; ++i) last = backoff.Next();
  EXPECT_GE(last, std::chrono::milliseconds(800));
  EXPECT_LE(last, std::chrono::milliseconds(1200));
  backoff.Reset();
  EXPECT_LE(backoff.Next(), std::chrono::milliseconds(60));
}

}  // namespace
}  // namespace muster::rpc
