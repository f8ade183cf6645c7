#include "common/process/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "common/telemetry/progress.h"

namespace muster {
namespace {

using std::chrono::milliseconds;

TEST(SupervisorLine, SurvivesTheWay) {
  const SupervisorLine lost = {false, {"worker:1", 70, "no \"heartbeat\"", milliseconds(1500)}};
  const Json json = Json::parse(SupervisorLineToJson(lost).dump());
  ASSERT_TRUE(IsSupervisorLine(json));
  const auto read = SupervisorLineFromJson(json);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->found);
  EXPECT_EQ(read->lost.task, "worker:1");
  EXPECT_EQ(read->lost.pid, 70);
  EXPECT_EQ(read->lost.why, lost.lost.why);
  EXPECT_EQ(read->lost.grace, lost.lost.grace);

  const auto found = SupervisorLineFromJson(SupervisorLineToJson({true, {"chief:0", 0, "", {}}}));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->found);
  EXPECT_EQ(found->lost.task, "chief:0");
}

TEST(SupervisorLine, IsNoProgress) {
  EXPECT_FALSE(IsSupervisorLine(ProgressToJson(ProgressState())));
  EXPECT_FALSE(IsSupervisorLine(Json("lost")));
  EXPECT_FALSE(SupervisorLineFromJson({{"lost", {{"task", 3}}}}).ok());
  EXPECT_FALSE(SupervisorLineFromJson({{"lost", "worker:1"}}).ok());
}

class Pipe : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_), 0);
    setenv(kProgressFdVariable, std::to_string(ends_[1]).c_str(), 1);
  }
  void TearDown() override {
    unsetenv(kProgressFdVariable);
    close(ends_[0]);
  }
  std::string Packet() {
    char text[4096];
    const ssize_t size = recv(ends_[0], text, sizeof text, MSG_DONTWAIT);
    return size > 0 ? std::string(text, static_cast<size_t>(size)) : "";
  }
  int ends_[2];
};

TEST_F(Pipe, IsSharedWithTheProgress) {
  const auto supervisor = MakeSupervisor();
  auto progress = MakeProgressSender(ends_[1]);
  progress->Show({.kind = ProgressState::Kind::kEpoch, .epoch = 4});
  supervisor->ReportLost({"worker:0", 12, "frozen", {}});
  supervisor->ReportFound("chief:0");
  EXPECT_EQ(ProgressFromJson(Json::parse(Packet()))->epoch, 4);
  EXPECT_EQ(SupervisorLineFromJson(Json::parse(Packet()))->lost.pid, 12);
  progress.reset();  // closes the descriptor that it was given, not the copy
  EXPECT_TRUE(SupervisorLineFromJson(Json::parse(Packet()))->found);
  supervisor->ReportFound("chief:0");
  EXPECT_THAT(Packet(), testing::EndsWith("\n"));
}

TEST_F(Pipe, NeitherBlocksNorFails) {
  const auto supervisor = MakeSupervisor();
  for (int i = 0; i < 10000; ++i) supervisor->ReportFound("chief:0");
  close(ends_[0]);
  supervisor->ReportFound("chief:0");
  ends_[0] = -1;
  close(ends_[1]);
}

TEST(NullSupervisor, ReceivesNothing) {
  unsetenv(kProgressFdVariable);
  MakeSupervisor()->ReportLost({"worker:0", 12, "frozen", {}});
}

}  // namespace
}  // namespace muster
