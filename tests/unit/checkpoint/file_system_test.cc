// The contract of FileSystem, over both; and what the twin forgets at a crash.
#include "common/checkpoint/files/file_system.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "common/base/files/created_files.h"
#include "common/checkpoint/store.h"
#include "tests/unit/checkpoint/file_systems.h"
#include "tests/unit/checkpoint/memory_file_system.h"

namespace muster::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void Put(FileSystem& files, const std::string& path, const std::string& bytes) {
  auto file = files.Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append(bytes).ok());
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE((*file)->Close().ok());
}

std::string Get(FileSystem& files, const std::string& path) {
  const auto bytes = ReadFile(files, path);
  return bytes.ok() ? *bytes : std::string(Message(bytes.status()));
}

using FileSystemContract = testing_support::OnEveryFileSystem;
INSTANTIATE_TEST_SUITE_P(All, FileSystemContract, testing::Bool(), testing_support::BenchName);

TEST_P(FileSystemContract, FilesAreWrittenReplacedAndRead) {
  Put(files(), In("a"), "one");
  EXPECT_EQ(Get(files(), In("a")), "one");
  Put(files(), In("a"), "");
  EXPECT_EQ(Get(files(), In("a")), "");
  const std::string large(5'000'001, 'x');
  Put(files(), In("a"), large);
  EXPECT_EQ(Get(files(), In("a")), large);
  const auto file = files().Open(In("a"));
  ASSERT_TRUE(file.ok());
  char bytes[4];
  EXPECT_TRUE((*file)->ReadAt(4'999'997, 4, bytes).ok());
  EXPECT_TRUE(absl::IsOutOfRange((*file)->ReadAt(4'999'998, 4, bytes)));
  EXPECT_TRUE((*file)->ReadAt(5'000'001, 0, bytes).ok());
}

TEST_P(FileSystemContract, PiecesAreWrittenWhereTheyBelong) {
  auto file = files().Create(In("a"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->WriteAt(6, "gh").ok());
  ASSERT_TRUE((*file)->WriteAt(0, "abcd").ok());
  ASSERT_TRUE((*file)->WriteAt(1, "B").ok());
  ASSERT_TRUE((*file)->Sync().ok() && (*file)->Close().ok());
  EXPECT_EQ(Get(files(), In("a")), std::string("aBcd\0\0gh", 8));
}

TEST_P(FileSystemContract, DirectoriesAreMadeListedAndRemoved) {
  EXPECT_TRUE(absl::IsNotFound(files().MakeDirectory(In("d/e"))));
  ASSERT_TRUE(MakeDirectories(files(), In("d/e/")).ok());
  ASSERT_TRUE(MakeDirectories(files(), In("d/e")).ok());
  EXPECT_TRUE(files().MakeDirectory(In("d")).ok());
  Put(files(), In("d/file"), "x");
  EXPECT_THAT(*files().List(In("d")), ElementsAre("e", "file"));
  EXPECT_TRUE(files().SyncDirectory(In("d")).ok());
  EXPECT_FALSE(files().MakeDirectory(In("d/file")).ok());
  EXPECT_FALSE(files().Create(In("d/e")).ok());
  EXPECT_FALSE(files().Open(In("d/e")).ok());
  EXPECT_TRUE(files().Remove(In("d")).ok());
  EXPECT_EQ(files().Exists(In("d")).value(), false);
  EXPECT_EQ(files().Exists(In("d/e/f")).value(), false);
}

TEST_P(FileSystemContract, WhatIsMissingIsNamed) {
  const absl::Status statuses[] = {
      files().Create(In("no/file")).status(), files().Open(In("no/file")).status(),
      files().List(In("no/file")).status(),   files().Rename(In("no/file"), In("x")),
      files().Remove(In("no/file")),          files().SyncDirectory(In("no/file"))};
  for (const absl::Status& status : statuses) {
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(status.ToString(), HasSubstr("no/file: No such file or directory"));
  }
  Put(files(), In("file"), "x");
  EXPECT_TRUE(absl::IsNotFound(files().Rename(In("file"), In("no/file"))));
  EXPECT_TRUE(absl::IsNotFound(files().List(In("file")).status()));
}

TEST_P(FileSystemContract, RenameReplacesAFileButNoDirectory) {
  Put(files(), In("a"), "a");
  Put(files(), In("b"), "b");
  ASSERT_TRUE(files().Rename(In("a"), In("b")).ok());
  EXPECT_EQ(Get(files(), In("b")), "a");
  EXPECT_EQ(files().Exists(In("a")).value(), false);
  ASSERT_TRUE(files().MakeDirectory(In("d")).ok());
  ASSERT_TRUE(files().MakeDirectory(In("empty")).ok());
  Put(files(), In("d/in"), "in");
  EXPECT_TRUE(absl::IsAlreadyExists(files().Rename(In("d"), In("empty"))));
  EXPECT_TRUE(absl::IsAlreadyExists(files().Rename(In("d"), In("b"))));
  ASSERT_TRUE(files().Rename(In("d"), In("empty/d")).ok());
  EXPECT_EQ(Get(files(), In("empty/d/in")), "in");
}

TEST(PosixErrors, SayWhatTheyMean) {
  const testing_support::PosixBench bench;
  FileSystem& files = PosixFileSystem();
  // Where even root may not write, and a disk that is always full.
  EXPECT_TRUE(absl::IsPermissionDenied(files.MakeDirectory("/proc/sys/muster")) ||
              absl::IsNotFound(files.MakeDirectory("/proc/sys/muster")));
  const auto full = files.Create("/dev/full");
  ASSERT_TRUE(full.ok()) << full.status();
  const absl::Status status = (*full)->Append("x");
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(Message(status), "cannot write /dev/full: No space left on device");
  // A pipe holds nobody up.
  const std::string pipe = bench.folder() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(files.Open(pipe).status().ToString(), HasSubstr("no ordinary file"));
}

// Somebody who may write to model_dir puts a link in the place of a folder of it.
TEST(PosixLinks, WhatALinkLeadsToIsNeitherListedNorRenamedNorRemoved) {
  std::string root = std::filesystem::temp_directory_path() / "muster-links-XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  const std::string job = root + "/job", home = root + "/home";
  std::filesystem::create_directories(job + "/checkpoints");
  std::filesystem::create_directories(home + "/papers");
  std::filesystem::create_symlink(home, job + "/checkpoints/.staging");
  AddJobFolder(job);
  FileSystem& files = PosixFileSystem();
  const std::string link = job + "/checkpoints/.staging";
  EXPECT_FALSE(RemoveStaging(files, job + "/checkpoints", nullptr).ok());
  EXPECT_FALSE(files.List(link).ok());
  EXPECT_FALSE(files.Rename(link + "/papers", link + "/papers.gone").ok());
  EXPECT_FALSE(files.Rename(link + "/papers", job + "/papers").ok());
  EXPECT_FALSE(files.Remove(link + "/papers").ok());
  EXPECT_TRUE(std::filesystem::exists(home + "/papers"));
  EXPECT_TRUE(files.Remove(link).ok()) << "the link itself";
  EXPECT_TRUE(std::filesystem::exists(home + "/papers"));
  std::filesystem::remove_all(root);
}

TEST(Paths, AreTakenApart) {
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("/", "b"), "/b");
  EXPECT_EQ(BaseName("/a/b/"), "b");
  EXPECT_EQ(ParentPath("/a/b/"), "/a");
  EXPECT_EQ(ParentPath("/a"), "/");
  EXPECT_EQ(ParentPath("/"), "/");
  EXPECT_EQ(ParentPath("a"), ".");
}

TEST(Crash, ForgetsWhatWasNotSynced) {
  MemoryFileSystem files;
  ASSERT_TRUE(MakeDirectories(files, "/d/e").ok());
  Put(files, "/d/a", "synced");
  ASSERT_TRUE(files.SyncDirectory("/d").ok());
  Put(files, "/d/b", "its entry was not");
  auto half = files.Create("/d/half");
  ASSERT_TRUE((*half)->Append("one").ok() && (*half)->Sync().ok() && (*half)->Append("two").ok());
  ASSERT_TRUE(files.SyncDirectory("/d").ok());
  ASSERT_TRUE(files.Rename("/d/a", "/d/e/a").ok());
  Put(files, "/d/c", "neither was its");
  files.CrashNow(MemoryFileSystem::Crash::kSyncedOnly, 0);
  EXPECT_THAT(*files.List("/d"), ElementsAre("a", "b", "e", "half"));
  EXPECT_EQ(Get(files, "/d/a"), "synced");
  EXPECT_EQ(Get(files, "/d/half"), "one");
  EXPECT_THAT(*files.List("/d/e"), ElementsAre());
  EXPECT_FALSE((*half)->Append("x").ok());
}

TEST(Crash, ARenameIsOneChange) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    MemoryFileSystem files;
    ASSERT_TRUE(MakeDirectories(files, "/from").ok() && MakeDirectories(files, "/to").ok());
    Put(files, "/from/a", "a");
    ASSERT_TRUE(files.Rename("/from/a", "/to/a").ok());
    const bool synced = seed % 2 == 0;
    ASSERT_TRUE(!synced || files.SyncDirectory("/to").ok());
    files.CrashNow(MemoryFileSystem::Crash::kRandom, seed);
    const bool from = *files.Exists("/from/a"), to = *files.Exists("/to/a");
    EXPECT_FALSE(from && to) << seed;
    EXPECT_TRUE(to || !synced) << seed;
  }
}

TEST(Crash, CapacityIsKept) {
  MemoryFileSystem files;
  files.SetCapacity(10);
  Put(files, "/a", "12345");
  auto file = files.Create("/b");
  EXPECT_TRUE(absl::IsResourceExhausted((*file)->Append("123456")));
  EXPECT_EQ(Get(files, "/b"), "12345");
  ASSERT_TRUE(files.Remove("/a").ok());
  EXPECT_TRUE((*file)->Append("67890").ok());
}

}  // namespace
}  // namespace muster::checkpoint
