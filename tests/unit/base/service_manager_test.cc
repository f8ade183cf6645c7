#include "common/base/service_manager.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

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

// In a process of its own, because the thread stays.
void RunWatched(const std::string& name, const char* limit, const std::string& pid) {
  setenv(kNotifySocketVariable, name.c_str(), 1);
  setenv(kWatchdogVariable, limit, 1);
  if (!pid.empty()) setenv(kWatchdogPidVariable, pid.c_str(), 1);
  TellReady();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  _exit(0);
}

TEST_F(ServiceManagerTest, TheManagerHearsThatTheProcessRuns) {
  const struct {
    const char *limit, *pid;
    int least, most;
  } kCases[] = {{"20000", "", 5, 31},   {"20000", "1", 0, 0},
                {"60000000", "", 1, 1}, {"99999999999999999999", "", 0, 0},
                {"0", "", 0, 0},        {"", "", 0, 0},
                {"20ms", "", 0, 0}};
  for (const auto& [limit, pid, least, most] : kCases) {
    const std::string name = folder_ + "/watched";
    const Fd manager = Listen(name);
    EXPECT_EXIT(RunWatched(name, limit, pid), testing::ExitedWithCode(0), "");
    EXPECT_EQ(Received(manager), "READY=1");
    int told = 0;
    for (std::string message; !(message = Received(manager)).empty(); ++told)
      EXPECT_EQ(message, "WATCHDOG=1");
    EXPECT_GE(told, least) << limit;
    EXPECT_LE(told, most) << limit;
    std::filesystem::remove(name);
  }
}

}  // namespace
}  // namespace muster
