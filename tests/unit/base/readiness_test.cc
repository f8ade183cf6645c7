#include "common/base/readiness.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
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

class ReadinessTest : public testing::Test {
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
  const std::string folder_ = testing::TempDir() + "/readiness-" + std::to_string(getpid());
};

TEST_F(ReadinessTest, TellsTheManagerAtAPathOrAnAbstractName) {
  for (const std::string& name : {folder_ + "/notify", "@muster-" + std::to_string(getpid())}) {
    const Fd manager = Listen(name);
    Tell(name);
    EXPECT_EQ(Received(manager), "READY=1") << name;
    TellReady();
    EXPECT_EQ(Received(manager), "READY=1") << name;
    EXPECT_EQ(Received(manager), "") << name;
  }
}

TEST_F(ReadinessTest, IsSilentWithoutAManager) {
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

TEST_F(ReadinessTest, DoesNotWaitForAManagerThatReadsNothing) {
  const Fd manager = Listen(folder_ + "/notify");
  for (int i = 0; i < 5000; ++i) Tell(folder_ + "/notify");  // more than the socket holds
  EXPECT_EQ(Received(manager), "READY=1");
}

}  // namespace
}  // namespace muster
