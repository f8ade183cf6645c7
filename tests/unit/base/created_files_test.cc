// Tests the permissions and the places of files that Muster makes in a job's folder.
#include "common/base/files/created_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

namespace muster {
namespace {

namespace fs = std::filesystem;

int ModeOf(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
  return static_cast<int>(info.st_mode & 0777);
}

class CreatedFiles : public ::testing::Test {
 protected:
  CreatedFiles() : umask_(umask(0)) {
    std::string name = (fs::temp_directory_path() / "muster-created-XXXXXX").string();
    top_ = mkdtemp(name.data());
    chmod(top_.c_str(), 0777);
    job_ = top_ + "/runs/job";
  }
  ~CreatedFiles() override {
    umask(umask_);
    SetFileMode(FileMode::kPrivate);
    fs::remove_all(top_);
  }
  const mode_t umask_;  // The process's umask before the test, which sets 000.
  std::string top_, job_;
};

TEST_F(CreatedFiles, ANewJobFolderIsItsUsersAlone) {
  AddJobFolder(job_);
  ASSERT_EQ(MakeFolders(job_), 0);
  EXPECT_EQ(ModeOf(top_ + "/runs"), 0700);
  EXPECT_EQ(ModeOf(job_), 0700);
  ASSERT_EQ(MakeFolders(job_ + "/a/b"), 0);
  EXPECT_EQ(ModeOf(job_ + "/a/b"), 0700);
  ASSERT_TRUE(CreateFile(job_ + "/a/file", O_WRONLY));
  EXPECT_EQ(ModeOf(job_ + "/a/file"), 0600);
  EXPECT_EQ(MakeFolders(job_ + "/a/b"), 0) << "it is there";
  EXPECT_EQ(MakeFolders(job_ + "/a/file"), ENOTDIR);
}

TEST_F(CreatedFiles, AFolderThatWasThereIsAsOpenAsItsOwnerMadeIt) {
  fs::create_directories(job_);
  chmod(job_.c_str(), 0750);
  AddJobFolder(job_);
  ASSERT_EQ(MakeFolders(job_), 0);
  EXPECT_EQ(ModeOf(job_), 0750);
  ASSERT_EQ(MakeFolder(job_ + "/a"), 0);
  EXPECT_EQ(ModeOf(job_ + "/a"), 0750);
  ASSERT_TRUE(CreateFile(job_ + "/a/file", O_WRONLY));
  EXPECT_EQ(ModeOf(job_ + "/a/file"), 0640);
}

TEST_F(CreatedFiles, GroupAndUmask) {
  AddJobFolder(job_);
  umask(022);
  SetFileMode(FileMode::kGroup);
  ASSERT_EQ(MakeFolders(job_), 0);
  ASSERT_TRUE(CreateFile(job_ + "/group", O_WRONLY));
  EXPECT_EQ(ModeOf(job_), 0770);
  EXPECT_EQ(ModeOf(job_ + "/group"), 0660);
  SetFileMode(FileMode::kUmask);
  ASSERT_TRUE(CreateFile(job_ + "/umask", O_WRONLY));
  EXPECT_EQ(ModeOf(job_ + "/umask"), 0644);
  EXPECT_EQ(*ParseFileMode("group"), FileMode::kGroup);
  EXPECT_EQ(ParseFileMode("0600").status().message(),
            "must be one of private, group, umask, is \"0600\"");
}

TEST_F(CreatedFiles, LinksInAJobFolderAreNotFollowed) {
  AddJobFolder(job_);
  ASSERT_EQ(MakeFolders(job_), 0);
  const std::string victim = top_ + "/victim", folder = top_ + "/folder";
  std::ofstream(victim) << "precious";
  fs::create_directories(folder);
  fs::create_symlink(victim, job_ + "/job.json");
  fs::create_symlink(folder, job_ + "/train");
  EXPECT_FALSE(CreateFile(job_ + "/job.json", O_WRONLY | O_TRUNC));
  EXPECT_EQ(errno, ELOOP);
  EXPECT_FALSE(CreateLockFile(job_ + "/job.json"));
  EXPECT_FALSE(CreateFile(job_ + "/train/events", O_WRONLY));
  EXPECT_EQ(errno, ELOOP);
  EXPECT_EQ(MakeFolder(job_ + "/train/more"), ELOOP);
  EXPECT_EQ(MakeFolders(job_ + "/train/more"), ELOOP);
  EXPECT_EQ(MakeFolders(job_ + "/train"), ELOOP);
  EXPECT_EQ(fs::file_size(victim), 8u);
  EXPECT_TRUE(fs::is_empty(folder));
}

// Ends the process if it blocks because a pipe has no reader.
class Alarm {
 public:
  Alarm() { alarm(20); }
  ~Alarm() { alarm(0); }
};

TEST_F(CreatedFiles, APipeInTheNameOfAFileHoldsNobodyUp) {
  AddJobFolder(job_);
  ASSERT_EQ(MakeFolders(job_), 0);
  const std::string path = job_ + "/log.csv";
  ASSERT_EQ(mkfifo(path.c_str(), 0666), 0);
  const Alarm alarm;
  for (const FileMode mode : {FileMode::kPrivate, FileMode::kGroup}) {
    SetFileMode(mode);
    for (const int flags : {O_WRONLY | O_APPEND, O_RDWR}) {
      EXPECT_FALSE(CreateFile(path, flags));
      EXPECT_EQ(FileErrorText(errno), "it is no ordinary file");
    }
  }
  EXPECT_FALSE(CreateLockFile(path));
  const Fd reader(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_FALSE(CreateFile(path, O_WRONLY)) << "a reader does not change this";
}

TEST_F(CreatedFiles, WhatAUserNamesMayBeAPipe) {
  const std::string path = top_ + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0666), 0);
  const Alarm alarm;
  EXPECT_FALSE(CreateFile(path, O_WRONLY)) << "nobody reads it";
  const Fd reader(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const Fd pipe = CreateFile(path, O_WRONLY);
  ASSERT_TRUE(pipe);
  EXPECT_EQ(fcntl(pipe.get(), F_GETFL) & O_NONBLOCK, 0) << "it is written to as ever";
}

TEST_F(CreatedFiles, LinksThatAUserNamesAreFollowed) {
  const std::string disk = top_ + "/disk", link = top_ + "/link";
  fs::create_directories(disk);
  fs::create_symlink(disk, link);
  AddJobFolder(link);
  ASSERT_EQ(MakeFolders(link), 0);
  EXPECT_TRUE(CreateFile(link + "/file", O_WRONLY)) << "the job's folder itself is a link";
  EXPECT_TRUE(fs::exists(disk + "/file"));
  fs::create_symlink(disk + "/out", top_ + "/out");
  EXPECT_TRUE(CreateFile(top_ + "/out", O_WRONLY)) << "no job's folder";
  EXPECT_TRUE(fs::exists(disk + "/out"));
}

TEST_F(CreatedFiles, NoOtherUserCanHoldALock) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  fs::create_directories(job_);
  chmod(job_.c_str(), 0755);
  AddJobFolder(job_);
  const std::string path = job_ + "/owner.lock";
  std::ofstream(path) << "";  // Older versions made the file with mode 0666.
  ASSERT_TRUE(CreateLockFile(path));
  EXPECT_EQ(ModeOf(path), 0600);
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(3);
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    _exit(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace muster
