#include "deploy/bundle/elf_file.h"

#include <elf.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "tests/unit/bundle/test_folder.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string MessageOf(const absl::StatusOr<ElfFile>& file) {
  return std::string(Message(file.status()));
}

TEST(ElfFile, KnowsWhatAProgramNeeds) {
  const absl::StatusOr<ElfFile> file = ElfFile::Read(kAProgram);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->bytes(), TestFolder::Read(kAProgram));
  EXPECT_THAT(file->needed(), Contains(StartsWith("libarchive.so.")));
  EXPECT_THAT(file->needed(), Contains("libc.so.6"));
  EXPECT_THAT(file->search_path(), Not(""));
  // At least the version of __libc_start_main, which this program uses.
  EXPECT_GE(file->glibc(), GlibcVersion(2, 34));
  EXPECT_LT(file->glibc(), GlibcVersion(3, 0));
}

// The new search path is read back, and everything else stays.
TEST(ElfFile, ReplacesTheSearchPath) {
  const TestFolder folder;
  absl::StatusOr<ElfFile> file = ElfFile::Read(kAProgram);
  ASSERT_TRUE(file.ok());
  const std::string before = file->search_path();
  const std::vector<std::string> needed = file->needed();
  ASSERT_TRUE(file->SetSearchPath("$ORIGIN/../lib"));
  EXPECT_THAT(std::string(file->bytes()), Not(HasSubstr(before)));
  const absl::StatusOr<ElfFile> again = ElfFile::Read(folder.Write("changed", file->bytes()));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->search_path(), "$ORIGIN/../lib");
  EXPECT_FALSE(again->has_runpath());
  EXPECT_THAT(again->needed(), ElementsAreArray(needed));
  EXPECT_EQ(again->glibc(), file->glibc());
}

TEST(ElfFile, RefusesASearchPathThatHasNoRoom) {
  absl::StatusOr<ElfFile> file = ElfFile::Read(kAProgram);
  ASSERT_TRUE(file.ok());
  const std::string before = file->search_path();
  EXPECT_FALSE(file->SetSearchPath(before + ":/more"));
  EXPECT_EQ(file->search_path(), before);
  EXPECT_EQ(file->bytes(), TestFolder::Read(kAProgram));
}

TEST(ElfFile, RemovesTheSearchPath) {
  const TestFolder folder;
  absl::StatusOr<ElfFile> file = ElfFile::Read(kAProgram);
  ASSERT_TRUE(file.ok());
  const std::vector<std::string> needed = file->needed();
  file->RemoveSearchPath();
  EXPECT_EQ(file->search_path(), "");
  EXPECT_FALSE(file->SetSearchPath("/x"));
  const absl::StatusOr<ElfFile> again = ElfFile::Read(folder.Write("changed", file->bytes()));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->search_path(), "");
  EXPECT_THAT(again->needed(), ElementsAreArray(needed));
}

// Sections behind the symbols move up, and the loader finds them there.
TEST(ElfFile, DropsSymbolsThatDebuggersRead) {
  const TestFolder folder;
  absl::StatusOr<ElfFile> file = ElfFile::Read(kAProgram);
  ASSERT_TRUE(file.ok());
  const size_t before = file->bytes().size();
  file->DropSymbols();
  EXPECT_LT(file->bytes().size(), before - 4096);
  const std::string path = folder.Write("changed", file->bytes());
  const absl::StatusOr<ElfFile> again = ElfFile::Read(path);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(again->needed(), ElementsAreArray(file->needed()));
  EXPECT_EQ(again->search_path(), file->search_path());
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  EXPECT_EQ(std::system((path + " >" + folder.Path("said")).c_str()), 0);
  EXPECT_THAT(TestFolder::Read(folder.Path("said")), StartsWith("sample, libarchive"));
}

TEST(ElfFile, RefusesOtherFilesWithOneSentence) {
  const TestFolder folder;
  EXPECT_THAT(MessageOf(ElfFile::Read(folder.Path("none"))),
              AllOf(HasSubstr("cannot read"), HasSubstr("No such file")));
  EXPECT_THAT(MessageOf(ElfFile::Read(folder.Path(""))), HasSubstr("is not a file with content"));
  EXPECT_THAT(MessageOf(ElfFile::Read(folder.Write("empty", ""))),
              HasSubstr("is not a file with content"));
  EXPECT_THAT(MessageOf(ElfFile::Read(folder.Write("text", "#!/bin/sh\nexit\n"))),
              HasSubstr("is not a 64-bit program or shared library"));
  std::string small(TestFolder::Read(kAProgram));
  small[EI_CLASS] = ELFCLASS32;
  EXPECT_THAT(MessageOf(ElfFile::Read(folder.Write("small", small))),
              HasSubstr("is not a 64-bit program or shared library"));
  EXPECT_EQ(ExitCodeOf(ElfFile::Read(folder.Path("none")).status()), ExitCode::kConfiguration);
}

// A file that is cut short or has wrong bytes is refused, or read as something else. It ends
// nothing.
TEST(ElfFile, SurvivesDamage) {
  const TestFolder folder;
  const std::string whole = TestFolder::Read(kAProgram);
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string damaged = whole;
    if (i % 3 == 0) damaged.resize(random() % whole.size() + 1);
    const size_t head = i % 3 == 1 ? 64 : damaged.size();
    for (int j = 0; j < 40; ++j)
      damaged[random() % std::min(head, damaged.size())] = static_cast<char>(random());
    absl::StatusOr<ElfFile> file = ElfFile::Read(folder.Write("damaged", damaged));
    refused += !file.ok();
    if (!file.ok()) continue;
    file->SetSearchPath("$ORIGIN");
    file->DropSymbols();
    file->RemoveSearchPath();
  }
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace muster
