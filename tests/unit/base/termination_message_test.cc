#include "common/base/process/termination_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace muster {
namespace {

class TerminationMessage : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "muster-termination-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = name + "/log";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Make(const std::string& contents) { std::ofstream(path_) << contents; }
  std::string Contents() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  std::string folder_, path_;
};

TEST_F(TerminationMessage, ReplacesWhatIsThere) {
  Make("something longer that was there before");
  WriteTerminationMessage(path_, "ROOT CAUSE: worker 1: gone");
  EXPECT_EQ(Contents(), "ROOT CAUSE: worker 1: gone");
}

TEST_F(TerminationMessage, MakesNoFile) {
  WriteTerminationMessage(path_, "words");
  EXPECT_FALSE(std::filesystem::exists(path_));
  WriteTerminationMessage("", "words");
}

TEST_F(TerminationMessage, IsCutAtTheEndOfACharacter) {
  Make("");
  const std::string letters(kTerminationMessageBytes - 1, 'x');
  WriteTerminationMessage(path_, letters + "\u00e4\u00e4");  // two bytes each
  EXPECT_EQ(Contents(), letters);
  WriteTerminationMessage(path_, letters + "yz");
  EXPECT_EQ(Contents(), letters + "y");
}

TEST_F(TerminationMessage, LeavesWhatIsNoFileAlone) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  WriteTerminationMessage(path_, "words");  // would block for a reader
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
  WriteTerminationMessage(folder_, "words");
  WriteTerminationMessage("/dev/null", "words");
}

TEST(TerminationLog, IsKubernetesDefaultUnlessTheVariableNamesAnother) {
  unsetenv(kTerminationLogVariable);
  EXPECT_EQ(TerminationLog(), "/dev/termination-log");
  setenv(kTerminationLogVariable, "/some/file", 1);
  EXPECT_EQ(TerminationLog(), "/some/file");
  unsetenv(kTerminationLogVariable);
}

}  // namespace
}  // namespace muster
