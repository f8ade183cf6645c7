#include "common/base/files/files.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace muster {
namespace {

using testing::HasSubstr;

class Files : public testing::Test {
 protected:
  ~Files() override { std::filesystem::remove(path_); }
  std::string DigestOf(const std::string& content) {
    std::ofstream(path_, std::ios::binary) << content;
    return FileDigest(path_).value_or("");
  }
  const std::string path_ =
      testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST(PathFrom, LeavesAbsoluteAndEmptyPathsAsTheyAre) {
  EXPECT_EQ(PathFrom("/jobs", "x.npy"), "/jobs/x.npy");
  EXPECT_EQ(PathFrom("/jobs", "/data/x.npy"), "/data/x.npy");
  EXPECT_EQ(PathFrom("", "x.npy"), "x.npy");
  EXPECT_EQ(PathFrom("/jobs", ""), "");
}

TEST_F(Files, DigestIsOfSizeAndContent) {
  EXPECT_EQ(DigestOf(""), "0 bytes, cbf29ce484222325");
  EXPECT_EQ(DigestOf("a"), "1 bytes, af63dc4c8601ec8c");  // FNV-1a as published
  EXPECT_NE(DigestOf("ab"), DigestOf("ba"));
}

// Every byte of a file counts up to 16 MiB; above, its size, its first and its last bytes do, and
// those of blocks in between.
TEST_F(Files, DigestOfLargeFilesIsOfBlocks) {
  for (const int64_t extra : {-1, 0, 1, 5000000}) {
    std::string content((16 << 20) + extra, 'a');
    const std::string before = DigestOf(content);
    const auto counts = [&](size_t at) {
      content[at] = 'b';
      const bool differs = DigestOf(content) != before;
      content[at] = 'a';
      return differs;
    };
    EXPECT_TRUE(counts(0)) << extra;
    EXPECT_TRUE(counts(content.size() - 1)) << extra;
    for (const size_t at : {70'000, 8'388'608, 12'345'678}) {
      EXPECT_TRUE(extra > 0 || counts(at)) << extra << " " << at;
    }
    content += 'a';
    EXPECT_NE(DigestOf(content), before) << extra;
  }
}

TEST_F(Files, DigestNamesWhatItCannotRead) {
  EXPECT_THAT(std::string(Message(FileDigest(path_).status())),
              testing::AllOf(HasSubstr(path_), HasSubstr("No such file")));
  EXPECT_THAT(std::string(Message(FileDigest(testing::TempDir()).status())),
              HasSubstr("is not a regular file"));
  EXPECT_EQ(ExitCodeOf(FileDigest(path_).status()), ExitCode::kDataDamaged);
}

TEST(Folders, AreListedAndDigestedByNamesAndSizes) {
  namespace fs = std::filesystem;
  const fs::path top = fs::path(testing::TempDir()) / "files_test_folder";
  fs::remove_all(top);
  const auto put = [&](const std::string& name, const std::string& content) {
    fs::create_directories((top / name).parent_path());
    std::ofstream(top / name) << content;
  };
  for (const char* name : {"b/2", "b/10", "a", "b/c/1", "b-c/1", ".git/x", "b/.hidden"})
    put(name, "1");
  EXPECT_THAT(ListFiles(top.string()).value(),
              testing::ElementsAre("a", "b/10", "b/2", "b-c/1", "b/c/1"));
  EXPECT_THAT(ListFolders(top.string()).value(), testing::ElementsAre("b", "b-c"));
  const std::string digest = PathDigest(top.string()).value();
  EXPECT_THAT(digest, testing::StartsWith("5 files, 5 bytes, "));
  put("b/.hidden", "2");
  EXPECT_EQ(PathDigest(top.string()).value(), digest);
  put("b/10", "longer");
  EXPECT_THAT(PathDigest(top.string()).value(), testing::StartsWith("5 files, 10 bytes, "));
  put("b/10", "1");
  EXPECT_EQ(PathDigest(top.string()).value(), digest);
  fs::rename(top / "b/10", top / "b/11");
  EXPECT_NE(PathDigest(top.string()).value(), digest);
  EXPECT_EQ(PathDigest((top / "a").string()).value(), FileDigest((top / "a").string()).value());
  EXPECT_THAT(MatchFiles((top / "b/1?").string()).value(),
              testing::ElementsAre((top / "b/11").string()));
  EXPECT_THAT(MatchFiles((top / "b/*").string()).value(),
              testing::ElementsAre((top / "b/11").string(), (top / "b/2").string()));
  EXPECT_THAT(PathDigest((top / "b/*").string()).value(), testing::StartsWith("2 files, 2 bytes"));
  EXPECT_THAT(MatchFiles((top / "none").string()).value(),
              testing::ElementsAre((top / "none").string()));
  fs::remove_all(top);
  EXPECT_THAT(std::string(Message(ListFiles(top.string()).status())),
              testing::EndsWith("files_test_folder' cannot be read: No such file or directory."));
  EXPECT_FALSE(ListFolders(top.string()).ok());
}

}  // namespace
}  // namespace muster
