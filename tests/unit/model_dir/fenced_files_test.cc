#include "chief/model_dir/fenced_files.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace muster::chief {
namespace {

using ::testing::HasSubstr;

class FencedFilesTest : public ::testing::Test {
 protected:
  FencedFilesTest() {
    std::string name = std::filesystem::temp_directory_path() / "muster-fenced-XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ + "/result.json";
  }
  ~FencedFilesTest() override { std::filesystem::remove_all(folder_); }
  int64_t Files() const { return std::distance(std::filesystem::directory_iterator(folder_), {}); }
  std::string Content() const {
    const auto json = ReadJsonFile(path_);
    return json.ok() ? json->dump() : std::string(Message(json.status()));
  }

  std::string folder_, path_;
};

TEST_F(FencedFilesTest, AFileAppearsWholeOrNotAtAll) {
  const FencedFiles files(nullptr, 0);
  ASSERT_TRUE(files.Write(path_, {{"loss", std::nan("")}, {"name", "\xff not UTF-8"}}).ok());
  ASSERT_TRUE(files.Write(path_, {{"steps", 2}, {"loss", std::nan("")}}).ok());
  EXPECT_EQ(Content(), R"({"loss":null,"steps":2})");
  EXPECT_EQ(Files(), 1);

  const absl::Status refused = files.Write(folder_ + "/no/such/folder.json", 1);
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kConfiguration);
  EXPECT_THAT(Message(refused), HasSubstr("/no/such/folder.json"));
  // A full disk is no wrong configuration.
  std::filesystem::create_symlink("/dev/full", path_ + ".0." + std::to_string(getpid()) + ".part");
  EXPECT_EQ(ExitCodeOf(files.Write(path_, 1)), ExitCode::kRetryable);
  // A folder in the way: the part file is gone again.
  std::filesystem::create_directory(folder_ + "/taken");
  EXPECT_FALSE(files.Write(folder_ + "/taken", 1).ok());
  EXPECT_EQ(Files(), 2);
}

TEST_F(FencedFilesTest, WhoWasSupersededWritesNothing) {
  ASSERT_TRUE(FencedFiles(nullptr, 2).Write(path_, "the successor's").ok());
  const FencedFiles late([] { return Superseded("taken"); }, 1);
  EXPECT_EQ(late.Write(path_, "late"), Superseded("taken"));
  EXPECT_EQ(late.Remove(path_), Superseded("taken"));
  EXPECT_EQ(Content(), "\"the successor's\"");
  EXPECT_EQ(Files(), 1);
}

// Frozen right after it has seen that it owns the folder, while another chief takes it, trains to
// the end and writes.
TEST_F(FencedFilesTest, WhoIsFrozenBetweenItsLookAndItsWriteWritesNothing) {
  const FencedFiles successor(nullptr, 2);
  const FencedFiles frozen(
      [&] {
        EXPECT_TRUE(successor.Write(path_, "the successor's").ok());
        return absl::OkStatus();  // what it saw before
      },
      1);
  EXPECT_TRUE(absl::IsAborted(frozen.Write(path_, "late")));
  EXPECT_EQ(Content(), "\"the successor's\"");
  EXPECT_EQ(Files(), 1);
}

TEST_F(FencedFilesTest, WhatIsFrozenInTheMiddleOfARemovalIsPutBack) {
  ASSERT_TRUE(FencedFiles(nullptr, 1).Write(path_, "old").ok());
  const FencedFiles successor(nullptr, 2);
  int looks = 0;
  const FencedFiles frozen(
      [&]() -> absl::Status {
        if (++looks > 1) return Superseded("taken");
        EXPECT_TRUE(successor.Write(path_, "the successor's").ok());
        return absl::OkStatus();
      },
      1);
  EXPECT_EQ(frozen.Remove(path_), Superseded("taken"));
  EXPECT_EQ(Content(), "\"the successor's\"");
  EXPECT_EQ(Files(), 1);
}

TEST_F(FencedFilesTest, WhatAKilledChiefLeftIsTakenAwayAndASuccessorsIsNot) {
  for (const char* part : {".3.77.part", ".9.78.part", ".x.part"})
    std::ofstream(path_ + part) << "half";
  const FencedFiles files(nullptr, 5);
  ASSERT_TRUE(files.Write(path_, 1).ok());
  EXPECT_FALSE(std::filesystem::exists(path_ + ".3.77.part"));
  EXPECT_TRUE(std::filesystem::exists(path_ + ".9.78.part"));
  EXPECT_TRUE(std::filesystem::exists(path_ + ".x.part"));
  ASSERT_TRUE(files.Remove(path_).ok());
  ASSERT_TRUE(files.Remove(path_).ok()) << "there is none";
  EXPECT_EQ(Files(), 2);
}

}  // namespace
}  // namespace muster::chief
