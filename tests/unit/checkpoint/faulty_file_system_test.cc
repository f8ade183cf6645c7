#include "common/checkpoint/files/faulty_file_system.h"

#include <gmock/gmock.h>

#include "tests/unit/checkpoint/memory_file_system.h"

namespace muster::checkpoint {
namespace {

class FaultyFileSystemTest : public testing::Test {
 protected:
  FaultyFileSystemTest() {
    EXPECT_TRUE(memory_.MakeDirectory("/disk").ok());
    EXPECT_TRUE(memory_.SyncDirectory("/").ok());
  }
  // Returns a file system with the faults of one process.
  std::unique_ptr<FileSystem> Faulty(const std::vector<std::string>& texts) {
    auto parsed = ParseFaults(texts);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    auto mine = FaultsOf("worker:0", *std::move(parsed), {"worker:0"});
    Faults::Actions actions = Faults::RealActions();
    actions.kill = [this] { ++kills_; };
    faults_ = std::make_unique<Faults>(*std::move(mine), 0, actions);
    return MakeFaultyFileSystem(memory_, faults_.get());
  }

  int kills_ = 0;
  MemoryFileSystem memory_;
  std::unique_ptr<Faults> faults_;
};

TEST_F(FaultyFileSystemTest, SaysThatTheDiskIsFullForAsLongAsItIs) {
  const auto files = Faulty({"disk-full@worker:0:step=3:for=50ms"});
  const auto open = files->Create("/disk/open");
  ASSERT_TRUE(open.ok());
  EXPECT_TRUE((*open)->Append("there").ok());
  faults_->At(Phase::kForward, 3);
  EXPECT_TRUE(absl::IsResourceExhausted((*open)->Append("there")));
  EXPECT_TRUE(absl::IsResourceExhausted((*open)->Sync()));
  EXPECT_TRUE(absl::IsResourceExhausted(files->Create("/disk/other").status()));
  EXPECT_TRUE(absl::IsResourceExhausted(files->MakeDirectory("/disk/folder")));
  EXPECT_TRUE(files->Exists("/disk/open").ok());
  while (!faults_->CheckDisk("/disk").ok()) {
  }
  EXPECT_TRUE((*open)->Append("there").ok());
  EXPECT_TRUE(files->Create("/disk/other").ok());
}

TEST_F(FaultyFileSystemTest, EachFileOfACheckpointIsAMoment) {
  const auto files =
      Faulty({"kill@worker:0:phase=save:step=4", "kill@worker:0:phase=save:step=4:nth=3"});
  const auto path = [](const std::string& name) { return "/disk/" + name; };
  ASSERT_TRUE(memory_.MakeDirectory(path("step-00000003")).ok());
  ASSERT_TRUE(memory_.MakeDirectory(path("step-00000005")).ok());
  EXPECT_TRUE(files->Create(path("latest")).ok());
  EXPECT_TRUE(files->Create(path("step-00000003/state.json")).ok());
  EXPECT_EQ(kills_, 0);
  EXPECT_TRUE(files->Create(path("step-00000005/state.json")).ok());
  EXPECT_EQ(kills_, 1);
  EXPECT_TRUE(files->Create(path("step-00000005/manifest.json")).ok());
  EXPECT_EQ(kills_, 1);
  EXPECT_TRUE(files->Rename(path("step-00000005"), path("step-00000006")).ok());
  EXPECT_EQ(kills_, 2);
}

}  // namespace
}  // namespace muster::checkpoint
