#include "deploy/hosts/host_connection.h"

#include <gmock/gmock.h>
#include <poll.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "deploy/hosts/ssh_command.h"

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

// Polls the connection as the launcher does until `done`, at most 20 s.
bool RunUntil(HostConnection& connection, const std::function<bool()>& done) {
  const MonotonicTime limit = Clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (Clock::now() > limit) return false;
    connection.Tick(Clock::now());
    std::vector<pollfd> polled;
    connection.AddPolled(true, &polled);
    if (poll(polled.data(), polled.size(), 5) > 0) connection.Read(polled.data());
  }
  return true;
}

// An "ssh" whose further session takes the archive, and whose first session writes the command that
// it starts to the file `line`.
ConnectionOptions WithArchive(const std::string& line, const std::string& then = "") {
  ConnectionOptions options = Through(
      "case \"$*\" in *take-archive*) exec cat >/dev/null;; esac; echo " +
      std::string(kShellReady) + "; " + then + "read l; echo \"$l\" >'" + line + "'; sleep 20");
  options.unpack = "take-archive";
  options.archive = "/dev/null";
  options.start_line = "start-it";
  return options;
}

TEST(HostConnection, AHostWithTheArchiveWaitsForTheStart) {
  const std::string line = testing::TempDir() + "/started-" + std::to_string(getpid());
  Losses losses;
  HostConnection connection(WithArchive(line), 0, losses);
  ASSERT_TRUE(connection.Open().ok());
  EXPECT_FALSE(connection.copied());
  ASSERT_TRUE(RunUntil(connection, [&] { return connection.copied(); }));
  const MonotonicTime now = Clock::now();
  EXPECT_EQ(connection.Tick(now), now + std::chrono::seconds(1));
  EXPECT_FALSE(std::filesystem::exists(line));
  connection.StartAfterCopy();
  EXPECT_TRUE(RunUntil(connection, [&] { return std::filesystem::exists(line); }));
  std::filesystem::remove(line);
  EXPECT_EQ(losses.count, 0);
}

TEST(HostConnection, AHostThatIsLostBetweenCopyAndStartIsNamed) {
  const std::string lose = testing::TempDir() + "/lose-" + std::to_string(getpid());
  const std::string wait = "until test -e '" + lose + "'; do sleep 0.01; done; exit 7; ";
  Losses losses;
  HostConnection connection(WithArchive("/dev/null", wait), 0, losses);
  ASSERT_TRUE(connection.Open().ok());
  ASSERT_TRUE(RunUntil(connection, [&] { return connection.copied(); }));
  std::ofstream(lose).flush();
  ASSERT_TRUE(RunUntil(connection, [&] { return connection.lost(); }));
  std::filesystem::remove(lose);
  EXPECT_EQ(losses.count, 1);
  EXPECT_EQ(std::string(Message(connection.status())),
            "the connection to h1 ended: ssh ended with code 7");
  connection.StartAfterCopy();  // Does nothing.
  EXPECT_TRUE(connection.lost());
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
