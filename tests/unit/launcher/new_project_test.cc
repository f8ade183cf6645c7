// The project that `muster new` writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "deploy/commands/new_command.h"

namespace muster::launcher {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(NewProject, NamesAClass) {
  EXPECT_EQ(ClassName("two_spirals"), "TwoSpirals");
  EXPECT_EQ(ClassName("x"), "X");
  EXPECT_EQ(ClassName("a__b2_"), "AB2");
}

TEST(NewProject, LeavesNoPlaceholder) {
  std::string folder = testing::TempDir() + "muster-new-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_TRUE(WriteProject(folder, "two_spirals", "/opt/muster").ok());
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    EXPECT_THAT(text.str(), Not(HasSubstr("{{"))) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 5);
  const absl::Status again = WriteProject(folder, "two_spirals", "/opt/muster");
  EXPECT_EQ(ExitCodeOf(again), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(again.message()), HasSubstr("is not empty"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace muster::launcher
