// Marks of ports that another user holds.
#include "deploy/launcher/processes/ports.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstring>
#include <string>

namespace muster::launcher {
namespace {

constexpr int kFirst = 10000, kLast = 10039;  // all that lie outside this ephemeral range
constexpr PortRange kEphemeral = {kLast + 1, 65535};

// Returns whether it holds all.
bool MarkAll() {
  for (int port = kFirst; port <= kLast; ++port) {
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::string name = "muster-port-" + std::to_string(port);
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) return false;
  }
  return true;
}

TEST(PortMarks, AnotherUserWhoHoldsAllOfThemKeepsNobodyFromStarting) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool marked = setgid(65534) == 0 && setuid(65534) == 0 && MarkAll();
    (void)!write(ends[1], marked ? "y" : "n", 1);
    pause();
    _exit(0);
  }
  char answer = 'n';
  ASSERT_EQ(read(ends[0], &answer, 1), 1);
  const auto reservation = PortReservation::Reserve(2, kEphemeral, 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  ASSERT_EQ(answer, 'y') << "marks are held already";
  EXPECT_TRUE(reservation.ok()) << reservation.status();
}

TEST(PortMarks, TheSameUsersAreKept) {
  const auto all = PortReservation::Reserve(10, kEphemeral, 0);
  const auto more = PortReservation::Reserve(40, kEphemeral, 0);
  EXPECT_TRUE(all.ok()) << all.status();
  EXPECT_FALSE(more.ok()) << "ten of the forty are taken";
}

}  // namespace
}  // namespace muster::launcher
