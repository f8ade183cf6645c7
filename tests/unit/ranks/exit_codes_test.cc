#include "deploy/ranks/exit_codes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace muster::ranks {
namespace {

class ExitCodes : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Take(const std::string& name) {
    const std::string path = folder_ + "/" + name;
    std::ifstream file(path);
    std::string line;
    const bool there(std::getline(file, line));
    std::filesystem::remove(path);
    return there ? line : std::string("-");
  }
  // "chief permanent", "-" for a file that is not there.
  std::string Written(std::optional<int> rank, int code) {
    WriteExitCode(folder_, rank, code);
    const std::string chief = Take("chief");
    return chief + " " + Take("permanent");
  }

  const std::string folder_ = testing::TempDir() + "/exit-codes-" + std::to_string(getpid());
};

TEST_F(ExitCodes, AreOfTheChiefAndOfTasksThatFailPermanently) {
  EXPECT_EQ(Written(0, 0), "0 -");
  EXPECT_EQ(Written(0, 2), "2 2");
  EXPECT_EQ(Written(0, 127), "127 127");
  EXPECT_EQ(Written(0, 143), "143 -");
  EXPECT_EQ(Written(1, 0), "- -");
  EXPECT_EQ(Written(1, 138), "- -");
  EXPECT_EQ(Written(1, 128), "- -");
  EXPECT_EQ(Written(7, 3), "- 3");
  EXPECT_EQ(Written(std::nullopt, 2), "- 2");
}

TEST_F(ExitCodes, AFolderThatIsGoneIsSaid) {
  std::filesystem::remove_all(folder_);
  testing::internal::CaptureStderr();
  WriteExitCode(folder_, 0, 143);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "muster: cannot write " + folder_ + "/chief: No such file or directory\n");
}

}  // namespace
}  // namespace muster::ranks
