#include "deploy/hosts/host_connection.h"

#include <gmock/gmock.h>

#include <thread>

namespace muster::hosts {
namespace {

using testing::HasSubstr;

class Losses final : public ConnectionListener {
 public:
  void OnMessage(size_t, const Json&) override {}
  void OnTaskLine(size_t, const TaskLine&) override {}
  void OnRemark(size_t, std::string_view) override {}
  void OnLost(size_t) override { ++count; }

  int count = 0;
};

ConnectionOptions Through(const std::string& script) {
  ConnectionOptions options;
  options.ssh = {"sh", "-c", script};
  options.target = "h1";
  options.control = testing::TempDir() + "/no-control";
  return options;
}

// Nothing else wakes a launcher that polls.
TEST(HostConnection, TheTickThatLosesItIsDueAgainAtOnce) {
  Losses losses;
  HostConnection connection(Through("exit 255"), 0, losses);
  EXPECT_EQ(connection.Tick(Clock::now()), std::nullopt);
  ASSERT_TRUE(connection.Open().ok());
  const MonotonicTime limit = Clock::now() + std::chrono::seconds(20);
  while (Clock::now() < limit) {
    const MonotonicTime now = Clock::now();
    const std::optional<MonotonicTime> due = connection.Tick(now);
    ASSERT_TRUE(due.has_value());
    if (connection.lost()) {
      EXPECT_EQ(*due, now);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(losses.count, 1);
  EXPECT_TRUE(connection.Ended());  // Or the launcher would wait for ssh when it is done.
  EXPECT_THAT(std::string(Message(connection.status())), HasSubstr("h1: ssh cannot connect"));
  EXPECT_EQ(connection.Tick(Clock::now()), std::nullopt);
}

}  // namespace
}  // namespace muster::hosts
