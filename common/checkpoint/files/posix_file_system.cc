#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/base/files/created_files.h"
#include "common/base/files/fd.h"
#include "common/checkpoint/files/file_system.h"

namespace muster::checkpoint {
namespace {

absl::Status Error(int code, std::string_view doing, const std::string& path) {
  const std::string message = fmt::format("cannot {} {}: {}", doing, path, FileErrorText(code));
  switch (code) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EEXIST:
    case ENOTEMPTY:
      return absl::AlreadyExistsError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(message);
    case EROFS:
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message);
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ESTALE:
    case ETIMEDOUT:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

Fd OpenFile(const std::string& path, int flags) {
  int fd = -1;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  return Fd(fd);
}

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  absl::Status Append(std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = write(fd_.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Error(errno, "write", path_);
      bytes.remove_prefix(n);
      written_ += n;
    }
    StartWriteback();
    return absl::OkStatus();
  }

  absl::Status WriteAt(int64_t offset, std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = pwrite(fd_.get(), bytes.data(), bytes.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Error(errno, "write", path_);
      bytes.remove_prefix(n);
      offset += n;
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    return fdatasync(fd_.get()) == 0 ? absl::OkStatus() : Error(errno, "sync", path_);
  }

  absl::Status Close() override {
    // On Linux, close always frees the descriptor. An error is that of an earlier write.
    if (close(fd_.Release()) != 0 && errno != EINTR) return Error(errno, "write", path_);
    return absl::OkStatus();
  }

 private:
  // Starts to write data to the disk while the caller still produces later data. This is only a
  // hint to the kernel. Only Sync guarantees that data is on the disk.
  void StartWriteback() {
    constexpr int64_t kStride = 8 << 20;
    if (written_ - started_ < kStride) return;
    sync_file_range(fd_.get(), started_, written_ - started_, SYNC_FILE_RANGE_WRITE);
    started_ = written_;
  }

  Fd fd_;
  const std::string path_;
  int64_t written_ = 0, started_ = 0;
};

class PosixReadableFile : public ReadableFile {
 public:
  PosixReadableFile(Fd fd, std::string path, int64_t size)
      : fd_(std::move(fd)), path_(std::move(path)), size_(size) {}

  int64_t size() const override { return size_; }

  absl::Status ReadAt(int64_t offset, size_t size, char* out) const override {
    while (size > 0) {
      const ssize_t n = pread(fd_.get(), out, size, offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Error(errno, "read", path_);
      if (n == 0) {
        return absl::OutOfRangeError(
            fmt::format("cannot read {}: it ends {} bytes too early", path_, size));
      }
      out += n, offset += n, size -= n;
    }
    return absl::OkStatus();
  }

 private:
  const Fd fd_;
  const std::string path_;
  const int64_t size_;
};

absl::Status RenameTo(const std::string& from, const std::string& to) {
  const NameInFolder old_name = FindName(from);
  if (!old_name.folder) return Error(errno, "rename", from);
  const NameInFolder new_name = FindName(to);
  if (!new_name.folder) return Error(errno, "rename", from);
  const auto rename = [&](unsigned flags) {
    return renameat2(old_name.folder.get(), old_name.name.c_str(), new_name.folder.get(),
                     new_name.name.c_str(), flags) == 0;
  };
  struct stat info;
  if (fstatat(old_name.folder.get(), old_name.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    return Error(errno, "rename", from);
  if (!S_ISDIR(info.st_mode)) return rename(0) ? absl::OkStatus() : Error(errno, "rename", from);
  // Without RENAME_NOREPLACE, rename(2) lets a directory replace an empty one.
  if (rename(RENAME_NOREPLACE)) return absl::OkStatus();
  if (errno == EEXIST) return Error(errno, "make", to);
  if (errno != EINVAL && errno != ENOSYS) return Error(errno, "rename", from);
  // The file system does not support the flag (NFS).
  if (fstatat(new_name.folder.get(), new_name.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0)
    return Error(EEXIST, "make", to);
  return rename(0) ? absl::OkStatus() : Error(errno, "rename", from);
}

class Posix : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    Fd fd = CreateFile(path, O_WRONLY | O_TRUNC);
    if (!fd) return Error(errno, "create", path);
    return std::make_unique<PosixWritableFile>(std::move(fd), path);
  }

  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    // O_NONBLOCK: opening a pipe in the place of a file would block.
    Fd fd = OpenFile(path, O_RDONLY | O_NONBLOCK);
    if (!fd) return Error(errno, "open", path);
    struct stat info;
    if (fstat(fd.get(), &info) != 0) return Error(errno, "open", path);
    if (!S_ISREG(info.st_mode)) {
      return absl::InternalError(fmt::format("cannot read {}: it is no ordinary file", path));
    }
    return std::make_unique<PosixReadableFile>(std::move(fd), path, info.st_size);
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    Fd folder = OpenFolder(directory);
    if (!folder) return Error(errno, "list", directory);
    DIR* handle = fdopendir(folder.Release());
    if (handle == nullptr) return Error(errno, "list", directory);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(handle)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    const int code = errno;
    closedir(handle);
    if (code != 0) return Error(code, "list", directory);
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::StatusOr<bool> Exists(const std::string& path) override {
    struct stat info;
    if (lstat(path.c_str(), &info) == 0) return true;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    return Error(errno, "look at", path);
  }

  absl::Status MakeDirectory(const std::string& path) override {
    const int code = MakeFolder(path);
    if (code == 0) return absl::OkStatus();
    struct stat info;
    if (code == EEXIST && stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
      return absl::OkStatus();
    }
    return Error(code, "make the directory", path);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    return RenameTo(from, to);
  }

  absl::Status Remove(const std::string& path) override {
    const NameInFolder found = FindName(path);
    if (!found.folder) return Error(errno, "remove", path);
    // remove_all does not follow links, and the path to the name goes through the open folder.
    std::error_code error;
    const uintmax_t removed = std::filesystem::remove_all(
        fmt::format("/proc/self/fd/{}/{}", found.folder.get(), found.name), error);
    if (error) return Error(error.value(), "remove", path);
    return removed > 0 ? absl::OkStatus() : Error(ENOENT, "remove", path);
  }

  absl::Status SyncDirectory(const std::string& path) override {
    const Fd fd = OpenFile(path, O_RDONLY | O_DIRECTORY);
    if (!fd) return Error(errno, "sync", path);
    // Some network file systems do not support fsync. Their renames are synchronous, so they do not
    // need it.
    if (fsync(fd.get()) == 0 || errno == EINVAL) return absl::OkStatus();
    return Error(errno, "sync", path);
  }
};

}  // namespace

FileSystem& PosixFileSystem() {
  static Posix* const files = new Posix;
  return *files;
}

}  // namespace muster::checkpoint
