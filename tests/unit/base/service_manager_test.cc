#include "common/base/process/service_manager.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>

#include "common/base/files/fd.h"

namespace muster {
namespace {

// The service manager's end. `name` begins with `@` for an abstract socket.
Fd Listen(const std::string& name) {
  Fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name.front() == '@') address.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length), 0) << name;
  return fd;
}

std::string Received(const Fd& fd) {
  char bytes[256];
  const ssize_t size = recv(fd.get(), bytes, sizeof bytes, 0);
  return size < 0 ? "" : std::string(bytes, static_cast<size_t>(size));
}

class ServiceManagerTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override {
    unsetenv(kNotifySocketVariable);
    std::filesystem::remove_all(folder_);
  }
  void Tell(const std::string& name) {
    setenv(kNotifySocketVariable, name.c_str(), 1);
    TellReady();
  }
  const std::string folder_ = testing::TempDir() + "/service-manager-" + std::to_string(getpid());
};

TEST_F(ServiceManagerTest, TellsTheManagerAtAPathOrAnAbstractName) {
  for (const std::string& name : {folder_ + "/notify", "@muster-" + std::to_string(getpid())}) {
    const Fd manager = Listen(name);
    Tell(name);
    EXPECT_EQ(Received(manager), "READY=1") << name;
    TellReady();
    EXPECT_EQ(Received(manager), "READY=1") << name;
    EXPECT_EQ(Received(manager), "") << name;
  }
}

TEST_F(ServiceManagerTest, IsSilentWithoutAManager) {
  const Fd manager = Listen(folder_ + "/notify");
  unsetenv(kNotifySocketVariable);
  TellReady();
  for (const std::string& name :
       {std::string(), std::string("@"), std::string("/"), std::string("relative/notify"),
        folder_ + "/none", "/" + std::string(300, 'x')}) {
    Tell(name);
  }
  EXPECT_EQ(Received(manager), "");
}

TEST_F(ServiceManagerTest, DoesNotWaitForAManagerThatReadsNothing) {
  const Fd manager = Listen(folder_ + "/notify");
  for (int i = 0; i < 5000; ++i) Tell(folder_ + "/notify");  // more than the socket holds
  EXPECT_EQ(Received(manager), "READY=1");
}

int Threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return static_cast<int>(std::distance(begin(threads), end(threads)));
}

// In a process of its own, because the thread stays. Waits until the manager has heard `wanted`
// times that the process runs. Exits with the number of threads that TellReady has started.
void RunWatched(const Fd& manager, const std::string& name, const char* limit,
                const std::string& pid, int wanted) {
  setenv(kNotifySocketVariable, name.c_str(), 1);
  setenv(kWatchdogVariable, limit, 1);
  if (!pid.empty()) setenv(kWatchdogPidVariable, pid.c_str(), 1);
  const int before = Threads();
  TellReady();
  const int started = Threads() - before;
  constexpr int kNotReady = 99;
  if (Received(manager) != "READY=1") _exit(kNotReady);
  while (wanted > 0) {
    pollfd ready = {manager.get(), POLLIN, 0};
    poll(&ready, 1, -1);
    if (const std::string message = Received(manager); message == "WATCHDOG=1") --wanted;
  }
  _exit(started);
}

TEST_F(ServiceManagerTest, TheManagerHearsThatTheProcessRuns) {
  const struct {
    const char *limit, *pid;
    int messages;  // How many are waited for. 0: none may ever come.
  } kCases[] = {
      {"20000", "", 5}, {"20000", "1", 0}, {"60000000", "", 1}, {"99999999999999999999", "", 0},
      {"0", "", 0},     {"", "", 0},       {"20ms", "", 0}};
  for (const auto& [limit, pid, messages] : kCases) {
    const std::string name = folder_ + "/watched";
    const Fd manager = Listen(name);
    EXPECT_EXIT(RunWatched(manager, name, limit, pid, messages),
                testing::ExitedWithCode(messages > 0 ? 1 : 0), "")
        << limit;
    std::filesystem::remove(name);
  }
}

}  // namespace
}  // namespace muster
