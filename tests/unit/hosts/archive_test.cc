#include "deploy/hosts/archive.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "deploy/hosts/local_command.h"

namespace muster::hosts {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string Within(const std::string& path) {
  const auto within = PathWithin(path, "/a/b");
  return within.ok() ? *within : "refused";
}

TEST(PathWithin, IsRelativeToTheCurrentFolder) {
  EXPECT_EQ(Within("x"), "x");
  EXPECT_EQ(Within("x/"), "x");
  EXPECT_EQ(Within("./x/../y"), "y");
  EXPECT_EQ(Within("/a/b/c/d"), "c/d");
  EXPECT_EQ(Within("."), ".");
  EXPECT_EQ(Within("/a/bc"), "refused");
  EXPECT_EQ(Within("../x"), "refused");
  EXPECT_EQ(Within("/a"), "refused");
}

class ArchiveTest : public testing::Test {
 protected:
  ArchiveTest() : before_(fs::current_path()) {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    fs::create_directories(folder_ + "/work folder/data");
    fs::current_path(folder_ + "/work folder");
    std::ofstream("data/x") << "1";
    setenv("XDG_CACHE_HOME", (folder_ + "/cache it").c_str(), 1);
  }
  ~ArchiveTest() override {
    fs::current_path(before_);
    fs::remove_all(folder_);
    unsetenv("XDG_CACHE_HOME");
  }

  // Runs a command as a login shell would, with the archive as its input.
  auto TryShell(const std::string& command, const TarArchive& archive, Duration timeout) {
    return RunCommand(
        {"sh", "-c", "exec <\"$1\"; eval \"$0\"", command,
         "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(archive.file.get())},
        signals_, timeout);
  }
  int Shell(const std::string& command, const TarArchive& archive) {
    const auto result = TryShell(command, archive, std::chrono::seconds(30));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->code : -1;
  }

  std::string folder_ = testing::TempDir() + "muster-archive-XXXXXX";
  const fs::path before_;
  launcher::SignalQueue signals_ = *launcher::SignalQueue::Open();
};

TEST_F(ArchiveTest, IsUnpackedOnceInAFolderOfItsContent) {
  const auto archive = MakeArchive({"data"}, signals_);
  ASSERT_TRUE(archive.ok()) << archive.status();
  EXPECT_EQ(MakeArchive({"data"}, signals_)->digest, archive->digest);
  const std::string command = UnpackOnceCommand(archive->digest);
  EXPECT_EQ(Shell(command, *archive), 0);
  const fs::path hosts = folder_ + "/cache it/muster/hosts";
  const fs::path unpacked = hosts / archive->digest;
  EXPECT_TRUE(fs::exists(unpacked / "data/x"));
  std::ofstream(unpacked / "data/y") << "kept";
  EXPECT_EQ(Shell(command, *archive), 0);
  EXPECT_TRUE(fs::exists(unpacked / "data/y"));
  // Nothing else is left there.
  EXPECT_EQ(std::distance(fs::directory_iterator(hosts), fs::directory_iterator()), 1);
  // The shell of the host finds it by the same name.
  EXPECT_EQ(Shell("cd " + ContentFolder(archive->digest) + " && test -f data/x", *archive), 0);
  std::ofstream("data/x") << "2";
  EXPECT_NE(MakeArchive({"data"}, signals_)->digest, archive->digest);
}

TEST_F(ArchiveTest, WhatEarlierLaunchesCopiedIsRemovedWhenItIsUnused) {
  const fs::path hosts = folder_ + "/cache it/muster/hosts";
  // An archive contains the times of its files, so the digest depends on them.
  const auto copy = [&, now = fs::file_time_type::clock::now()](const std::string& content) {
    std::ofstream("data/x") << content;
    fs::last_write_time("data/x", now);
    const auto archive = MakeArchive({"data"}, signals_);
    EXPECT_TRUE(archive.ok()) << archive.status();
    EXPECT_EQ(Shell(UnpackOnceCommand(archive->digest), *archive), 0);
    return hosts / archive->digest;
  };
  const auto age = [](const fs::path& path, int days) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(24 * days + 1));
  };
  const fs::path old = copy("1"), recent = copy("2"), with_run = copy("3"), changed = copy("4"),
                 in_use = copy("5"), unmarked = copy("6"), again = copy("7");
  for (const fs::path& each : {old, with_run, changed, in_use, again}) {
    EXPECT_TRUE(fs::exists(each / kCopyMark));
    age(each / kCopyMark, kCopyUnusedDays + 1);
  }
  age(recent / kCopyMark, kCopyUnusedDays - 1);
  fs::create_directories(with_run / "model");
  std::ofstream(changed / "data/x") << "edited";
  fs::remove(unmarked / kCopyMark);
  fs::create_directories(hosts / "mine");
  const fs::path begun = old.string() + ".aB3xYz", abandoned = old.string() + ".aB3xYw";
  for (const fs::path& each : {begun, abandoned}) fs::create_directories(each);
  age(abandoned, 2);

  const pid_t child = fork();
  if (child == 0) {
    if (chdir((in_use / "data").c_str()) != 0) _exit(1);
    pause();
    _exit(0);
  }
  const std::string cwd = "/proc/" + std::to_string(child) + "/cwd";
  const auto limit = Clock::now() + std::chrono::seconds(20);
  std::error_code error;
  while (fs::read_symlink(cwd, error) != fs::canonical(in_use / "data") && Clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(copy("7"), again) << "it is used again";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::set<fs::path> left;
  for (const auto& entry : fs::directory_iterator(hosts)) left.insert(entry.path());
  EXPECT_EQ(left, (std::set<fs::path>{recent, with_run, changed, in_use, unmarked, again,
                                      hosts / "mine", begun}));
  EXPECT_GT(fs::last_write_time(again / kCopyMark),
            fs::file_time_type::clock::now() - std::chrono::minutes(10));
  // Nobody runs in it any more.
  copy("7");
  EXPECT_FALSE(fs::exists(in_use));
}

TEST_F(ArchiveTest, AnArchiveThatIsCutLeavesNoFolder) {
  auto archive = MakeArchive({"data"}, signals_);
  ASSERT_TRUE(archive.ok()) << archive.status();
  std::ofstream("cut") << "no archive";
  archive->file = Fd(open("cut", O_RDONLY));
  EXPECT_NE(Shell(UnpackOnceCommand(archive->digest), *archive), 0);
  const fs::path hosts = folder_ + "/cache it/muster/hosts";
  EXPECT_EQ(std::distance(fs::directory_iterator(hosts), fs::directory_iterator()), 0);
}

TEST_F(ArchiveTest, IsUnpackedOverANamedFolder) {
  const auto archive = MakeArchive({"data"}, signals_);
  ASSERT_TRUE(archive.ok()) << archive.status();
  const std::string named = folder_ + "/my 'own' folder";
  fs::create_directories(named + "/data");
  std::ofstream(named + "/data/x") << "old";
  EXPECT_EQ(Shell(UnpackOverCommand(named), *archive), 0);
  std::string text;
  std::ifstream(named + "/data/x") >> text;
  EXPECT_EQ(text, "1");
}

TEST_F(ArchiveTest, HostsThatShareAFolderUnpackOneAfterAnother) {
  const auto archive = MakeArchive({"data"}, signals_);
  ASSERT_TRUE(archive.ok()) << archive.status();
  const std::string shared = folder_ + "/shared";
  fs::create_directories(shared);
  // Holds the lock like another host's command that unpacks.
  Fd lock(open((shared + "/" + kCopyLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
  const auto waits = TryShell(UnpackOverCommand(shared), *archive, std::chrono::seconds(1));
  EXPECT_FALSE(waits.ok());
  EXPECT_FALSE(fs::exists(shared + "/data"));
  lock.Reset();
  EXPECT_EQ(Shell(UnpackOverCommand(shared), *archive), 0);
  EXPECT_TRUE(fs::exists(shared + "/data/x"));
}

TEST_F(ArchiveTest, APathThatDoesNotExistIsNamed) {
  const auto archive = MakeArchive({"none"}, signals_);
  ASSERT_FALSE(archive.ok());
  EXPECT_EQ(ExitCodeOf(archive.status()), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(archive.status())), HasSubstr("none"));
}

}  // namespace
}  // namespace muster::hosts
