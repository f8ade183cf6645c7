#include "deploy/status/run_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/process/process_start.h"
#include "common/summary/event_writer.h"
#include "deploy/status/status_client.h"
#include "deploy/status/status_text.h"

namespace muster::status {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class RunFilesTest : public testing::Test {
 protected:
  RunFilesTest() {
    std::string name = testing::TempDir() + "/run-XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~RunFilesTest() override { std::filesystem::remove_all(directory_); }
  void Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(
        std::filesystem::path(directory_ + "/" + name).parent_path());
    std::ofstream(directory_ + "/" + name) << text;
  }
  RunFiles Read() const {
    auto run = ReadRunFiles(directory_);
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? *run : RunFiles();
  }
  std::string directory_;
};

TEST_F(RunFilesTest, AFolderWithoutARunIsNone) {
  const auto run = ReadRunFiles(directory_);
  EXPECT_EQ(ExitCodeOf(run.status()), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(run.status())), HasSubstr("is not a model_dir"));
}

TEST_F(RunFilesTest, TellsOfAFinishedRun) {
  Write("job.json", R"({"program": "/a/b/plugin.so", "strategy": "mirrored"})");
  Write("owner.json", R"({"run_id": "1a2b", "beat": 5, "left": true, "pid": 12, "place": "x"})");
  Write("checkpoints/latest", "step-00000020\n");
  Write("result.json", R"({"status": "failed", "cause": "worker 1: its process is gone",
      "steps": 25, "epochs": 3, "world_size": 2, "num_replicas": 2, "generations": 4,
      "wall_seconds": 12.5, "examples_per_second": 99.5,
      "step_seconds": {"compute": 0.001, "wait": 0.002, "input": 0.0005},
      "metrics": {"train": {"loss": 0.5}, "validation": {"loss": 0.75}, "test": null},
      "recovery": {"restarts": 1, "generations": 4, "losses": 1, "seconds_lost": 2.5,
                   "last_losses": [{"step": 11, "seconds": 2.5, "cause": "worker 1 was lost"}]},
      "best": {"metric": "val_loss", "value": 0.7}, "best_checkpoint": "checkpoints/step-00000010",
      "hardware": {"host": "h", "cores": 2}})");
  const RunFiles run = Read();
  EXPECT_THAT(run.damaged, IsEmpty());
  const proto::StatusReply reply = StatusOfFiles(run);
  EXPECT_EQ(reply.run_id(), "1a2b");
  EXPECT_EQ(reply.progress().program(), "plugin.so");
  EXPECT_EQ(reply.progress().step(), 25);
  EXPECT_EQ(reply.progress().metrics().at("loss"), 0.5);
  EXPECT_EQ(reply.progress().metrics().at("val_loss"), 0.75);
  EXPECT_EQ(reply.progress().checkpoint_step(), 20);
  EXPECT_LT(reply.verdict().exit_code(), 0);
  const auto lines = StatusLines(reply, 5);
  EXPECT_EQ(lines[0], "plugin.so, mirrored, run 1a2b: failed, running for 0:13");
  EXPECT_EQ(lines[1], "worker 1: its process is gone");
  EXPECT_EQ(lines.back(), "worker 1 was lost; it cost 2.5 s (step 11)");
  const auto outcome = OutcomeLines(run);
  ASSERT_THAT(outcome, SizeIs(4));
  EXPECT_EQ(outcome[0], "2 members, 2 replicas, 4 generations; chief on host h (2 cores)");
  EXPECT_EQ(outcome[2], "1 loss, 1 restart, 2.5 s lost");
  EXPECT_EQ(outcome[3], "best: val_loss 0.7 in checkpoints/step-00000010");
}

TEST_F(RunFilesTest, ReadsTheCurvesOfARunWithoutAResult) {
  Write("job.json", R"({"program": "linear"})");
  auto writer = summary::EventWriter::Open(directory_ + "/train");
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (int step = 1; step <= 7; ++step)
    ASSERT_TRUE((*writer)->Scalars(step, {{"loss", 10.0 / step}, {"learning_rate", 0.5}}).ok());
  ASSERT_TRUE((*writer)->Flush().ok());
  const proto::StatusReply reply = StatusOfFiles(Read());
  EXPECT_FALSE(reply.has_verdict());
  EXPECT_EQ(reply.progress().step(), 7);
  EXPECT_NEAR(reply.progress().metrics().at("loss"), 10.0 / 7, 1e-6);
  EXPECT_EQ(reply.progress().learning_rate(), 0.5);
}

TEST_F(RunFilesTest, TellsARunThatNeverBegan) {
  Write("job.json", R"({"program": "linear"})");
  Write("owner.json", R"({"run_id": "1", "begun": false})");
  EXPECT_FALSE(HasBegun(Read()));
  EXPECT_EQ(StatusOfFiles(Read()).stage(), "not begun");
  Write("checkpoints/latest", "step-00000500\n");
  EXPECT_TRUE(HasBegun(Read())) << "of another model_dir, or of an earlier run";
  EXPECT_EQ(StatusOfFiles(Read()).stage(), "unknown");
}

TEST_F(RunFilesTest, OwnersOfEarlierVersionsHaveBegun) {
  Write("owner.json", R"({"run_id": "1"})");
  EXPECT_TRUE(HasBegun(Read()));
}

TEST_F(RunFilesTest, SaysWhatIsDamagedAndShowsTheRest) {
  Write("job.json", R"({"program": "linear"})");
  Write("result.json", "{\"status\": ");
  Write("recovery.json", "[]");
  const RunFiles run = Read();
  ASSERT_THAT(run.damaged, SizeIs(2));
  EXPECT_THAT(run.damaged[0], HasSubstr("recovery.json contains no JSON object"));
  EXPECT_THAT(run.damaged[1], HasSubstr("result.json is not valid JSON: line 1"));
  EXPECT_EQ(StatusOfFiles(run).progress().program(), "linear");
}

TEST_F(RunFilesTest, TakesNoValueOfAnotherTypeForItsOwn) {
  Write("job.json", R"({"program": ["x"], "strategy": 5, "global_batch_size": 1e300})");
  Write("owner.json", R"({"run_id": {}, "pid": "x", "place": 7, "left": 1, "beat": -1})");
  Write("status.json", R"({"address": 5})");
  Write("result.json", R"({"status": 7, "cause": null, "steps": 99999999999999999999, "metrics": [],
      "recovery": {"last_losses": [5, {"cause": 7}]}, "step_seconds": {"compute": "x"}})");
  const RunFiles run = Read();
  EXPECT_EQ(ChiefAddressOf(run), "");
  EXPECT_EQ(LocalPidOf(run), 0);
  const proto::StatusReply reply = StatusOfFiles(run);
  EXPECT_EQ(reply.progress().step(), 0);
  EXPECT_EQ(reply.events_size(), 2);
  EXPECT_FALSE(OutcomeLines(run).empty());
}

TEST_F(RunFilesTest, AProcessWithTheSamePidIsAnother) {
  const auto owner = [this](const std::string& start) {
    Write("owner.json", fmt::format(R"({{"pid": {}, "place": "{}", "process_start": "{}"}})",
                                    getpid(), PlaceOfThisProcess(), start));
    return LocalPidOf(Read());
  };
  EXPECT_EQ(owner(StartOf(getpid())), getpid());
  EXPECT_EQ(owner("1"), 0);
  EXPECT_EQ(owner(""), 0);
}

TEST_F(RunFilesTest, AnOwnerThatHasLeftIsNotAwaited) {
  Write("owner.json", R"({"left": true, "beat": 5})");
  EXPECT_FALSE(OwnerLives(Read(), std::chrono::hours(1)));
  Write("owner.json", R"({"left": false, "beat": 5})");
  EXPECT_FALSE(OwnerLives(Read(), std::chrono::milliseconds(150)));
}

TEST(ServerCertificate, NeedsAPort) {
  EXPECT_EQ(ExitCodeOf(CertificateOfServer("nowhere", std::chrono::seconds(1)).status()),
            ExitCode::kConfiguration);
  // A port of the loopback address on which nobody listens.
  const auto nobody = CertificateOfServer("127.0.0.1:1", std::chrono::minutes(1));
  EXPECT_EQ(ExitCodeOf(nobody.status()), ExitCode::kRetryable);
  EXPECT_EQ(std::string(Message(nobody.status())),
            "the chief at 127.0.0.1:1 cannot be reached: the connection is refused");
}

TEST(LauncherKey, IsNotThereForOtherProcesses) {
  EXPECT_FALSE(OpenKeyOfLauncher(0));
  EXPECT_FALSE(OpenKeyOfLauncher(1));
  EXPECT_FALSE(OpenKeyOfLauncher(getpid()));
}

}  // namespace
}  // namespace muster::status
