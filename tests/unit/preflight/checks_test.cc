#include "deploy/preflight/checks.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace muster::preflight {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Checks : public testing::Test {
 protected:
  Checks() {
    std::string name = std::filesystem::temp_directory_path() / "muster-preflight-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~Checks() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(Checks, SharedMemoryMattersWhereMembersShareAHost) {
  EXPECT_TRUE(CheckSharedMemory(1, "/nowhere").ok);
  const Check none = CheckSharedMemory(2, "/nowhere");
  EXPECT_FALSE(none.ok);
  EXPECT_THAT(none.what, HasSubstr("/nowhere: No such file"));
  EXPECT_TRUE(CheckSharedMemory(2, folder_).ok);
  const Check small = CheckSharedMemory(1 << 30, folder_);
  EXPECT_FALSE(small.ok);
  EXPECT_THAT(small.fix, HasSubstr("--shm-size"));
}

TEST_F(Checks, AModelDirIsTriedAndLeftAsItWas) {
  EXPECT_TRUE(CheckModelDir("").ok);
  EXPECT_TRUE(CheckModelDir(folder_ + "/runs/a").ok);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_FALSE(CheckModelDir(folder_ + "/file/runs").ok);
  EXPECT_FALSE(CheckModelDir("/proc/muster").ok);
}

TEST_F(Checks, GpusAreCountedAgainstTheDevices) {
  for (const char* name : {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"})
    std::ofstream(folder_ + "/" + name) << "";
  EXPECT_EQ(CountGpus(folder_), 2);
  EXPECT_EQ(CountGpus("/nowhere"), 0);
  EXPECT_TRUE(CheckGpus("auto", 0).ok);
  EXPECT_TRUE(CheckGpus("cpu:2", 0).ok);
  EXPECT_FALSE(CheckGpus("cuda", 0).ok);
  EXPECT_TRUE(CheckGpus("cuda:0,1", 2).ok);
  EXPECT_FALSE(CheckGpus("cuda:0,2", 2).ok);
}

TEST(Summary, SaysWhatFailedAndHowToMendIt) {
  const std::vector<Check> checks = {
      {.name = "a", .what = "fine"},
      {.name = "long", .ok = false, .what = "gone", .fix = "bring it", .configuration = false}};
  EXPECT_THAT(Lines(checks), ElementsAre("ok      a     fine", "FAILED  long  gone: bring it"));
  EXPECT_THAT(Lines({{.name = "b", .what = "odd", .fix = "look at it", .warning = true}}),
              ElementsAre("warn    b  odd: look at it"));
}

TEST(Summary, PutsTheConfigurationFirst) {
  EXPECT_EQ(CodeOf({{.name = "a"}}), ExitCode::kDone);
  const Check late{.name = "b", .ok = false, .configuration = false};
  EXPECT_EQ(CodeOf({{.name = "a"}, late}), ExitCode::kRetryable);
  EXPECT_EQ(CodeOf({late, {.name = "c", .ok = false}}), ExitCode::kConfiguration);
}

}  // namespace
}  // namespace muster::preflight
