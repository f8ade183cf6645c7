#include "deploy/bundle/archive.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "tests/unit/bundle/test_folder.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kText = "text\n";

// More than one block of an archive.
const std::string kProgram(100'000, 'a');

absl::Status Write(const std::string& path, int compression = 3) {
  MUSTER_ASSIGN_OR_RETURN(ArchiveWriter archive, ArchiveWriter::Open(path, compression));
  MUSTER_RETURN_IF_ERROR(archive.Add("top/bin/program", kProgram, true));
  MUSTER_RETURN_IF_ERROR(archive.Add("top/text", kText, false));
  MUSTER_RETURN_IF_ERROR(archive.Add("top/empty", "", false));
  return archive.Finish();
}

// tar of this host is what users unpack with.
void Unpack(const std::string& archive, const std::string& folder) {
  std::filesystem::create_directories(folder);
  ASSERT_EQ(std::system(("tar -xf '" + archive + "' -C '" + folder + "'").c_str()), 0);
}

TEST(Archive, TarUnpacksIt) {
  const TestFolder folder;
  for (const char* ending : kArchiveEndings) {
    const std::string path = folder.Path(std::string("a") + ending);
    const absl::Status written = Write(path);
    ASSERT_TRUE(written.ok()) << written;
    const std::string out = folder.Path(std::string("out") + ending);
    Unpack(path, out);
    EXPECT_EQ(TestFolder::Read(out + "/top/bin/program"), kProgram);
    EXPECT_EQ(TestFolder::Read(out + "/top/text"), kText);
    EXPECT_EQ(TestFolder::Read(out + "/top/empty"), "");
    struct stat program, text;
    ASSERT_EQ(stat((out + "/top/bin/program").c_str(), &program), 0);
    ASSERT_EQ(stat((out + "/top/text").c_str(), &text), 0);
    EXPECT_EQ(program.st_mode & 0111, 0111u);
    EXPECT_EQ(text.st_mode & 0111, 0u);
    EXPECT_EQ(text.st_mtime, 315532800);
  }
}

TEST(Archive, TheSameFilesAreTheSameBytes) {
  const TestFolder folder;
  for (const char* ending : kArchiveEndings) {
    const std::string one = folder.Path(std::string("one") + ending);
    const std::string two = folder.Path(std::string("two") + ending);
    ASSERT_TRUE(Write(one).ok());
    const mode_t before = umask(0077);
    ASSERT_TRUE(Write(two).ok());
    umask(before);
    EXPECT_FALSE(TestFolder::Read(one).empty());
    EXPECT_EQ(TestFolder::Read(one), TestFolder::Read(two));
  }
}

TEST(Archive, WhatIsNotFinishedLeavesNothing) {
  const TestFolder folder;
  {
    absl::StatusOr<ArchiveWriter> archive = ArchiveWriter::Open(folder.Path("a.tar.zst"), 3);
    ASSERT_TRUE(archive.ok());
    ASSERT_TRUE(archive->Add("top/text", kText, false).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.Path("")));
}

TEST(Archive, RefusesWithOneSentence) {
  const TestFolder folder;
  EXPECT_THAT(std::string(Message(Write(folder.Path("a.zip")))),
              AllOf(HasSubstr(".tar.zst or .tar.gz"), HasSubstr("a.zip")));
  EXPECT_THAT(std::string(Message(Write(folder.Path("none/a.tar.zst")))),
              AllOf(HasSubstr("cannot write"), HasSubstr("No such file or directory")));
  EXPECT_EQ(ExitCodeOf(Write(folder.Path("a.zip"))), ExitCode::kConfiguration);
}

TEST(Archive, AFullDiskIsAnErrorAndLeavesNoArchive) {
  // A device that is full at once.
  const TestFolder folder;
  std::filesystem::create_symlink("/dev/full", folder.Path("a.tar.zst.part"));
  EXPECT_THAT(std::string(Message(Write(folder.Path("a.tar.zst")))),
              HasSubstr("No space left on device"));
  EXPECT_FALSE(std::filesystem::exists(folder.Path("a.tar.zst")));
}

}  // namespace
}  // namespace muster
