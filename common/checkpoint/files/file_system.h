// The interface through which checkpoints are read and written. Tests use an implementation that
// simulates a crash or a full disk between any two operations (MemoryFileSystem). FileSystem and
// ReadableFile are thread-safe.
//
// Error messages contain the path and the system's message. The codes are:
//
//   kNotFound            no such file
//   kAlreadyExists
//   kResourceExhausted   no space, quota
//   kPermissionDenied    read-only, not allowed
//   kUnavailable         temporary: no descriptors or memory, or a server does not answer
//   kInternal            anything else
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster::checkpoint {

class WritableFile {
 public:
  // Closes the file. After a crash, data that was not synced may be lost.
  virtual ~WritableFile() = default;
  virtual absl::Status Append(std::string_view bytes) = 0;
  // Writes at `offset`, which may be beyond the end of the file. Gaps are filled with zeros.
  // Thread-safe. A file must not be written with both Append and WriteAt.
  virtual absl::Status WriteAt(int64_t offset, std::string_view bytes) = 0;
  // Blocks until all bytes written so far are on the disk.
  virtual absl::Status Sync() = 0;
  virtual absl::Status Close() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual int64_t size() const = 0;
  // Reads exactly `size` bytes from `offset`. Returns kOutOfRange if the file is shorter.
  virtual absl::Status ReadAt(int64_t offset, size_t size, char* out) const = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Creates a file for writing. Replaces an existing file.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;
  // Returns the names of the entries, without the path of the directory.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;
  virtual absl::StatusOr<bool> Exists(const std::string& path) = 0;
  // Creates a directory. Returns OK if it exists already, and kNotFound if its parent does not
  // exist.
  virtual absl::Status MakeDirectory(const std::string& path) = 0;
  // Renames atomically. A file replaces an existing file. A directory replaces nothing: if `to`
  // exists, returns kAlreadyExists.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Removes a file, or a directory with its contents.
  virtual absl::Status Remove(const std::string& path) = 0;
  // Blocks until the directory's entries (creations, renames) are on the disk.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
};

// Returns the real file system, which is never destroyed.
FileSystem& PosixFileSystem();

// Reads a whole file into memory. Only for small files.
absl::StatusOr<std::string> ReadFile(FileSystem& files, const std::string& path);
// Creates a directory and its missing parents. Blocks until they are on the disk.
absl::Status MakeDirectories(FileSystem& files, const std::string& path);

std::string JoinPath(std::string_view directory, std::string_view name);
std::string BaseName(std::string_view path);  // Returns "c" for "/a/b/c" and "/a/b/c/".
// Returns "/a/b" for "/a/b/c", "." for "c" and "/" for "/c".
std::string ParentPath(std::string_view path);

}  // namespace muster::checkpoint
