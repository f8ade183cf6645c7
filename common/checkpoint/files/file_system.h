// The file system as an interface. Checkpoints are written through it, so that a test can crash,
// fill or remove it between any two operations. memory_file_system.h is a test implementation that
// loses what was not synced. Thread-safe.
//
// Errors name the path and the system's message. The caller decides what an error means for the
// process. The codes:
//
//   kNotFound            no such file
//   kAlreadyExists
//   kResourceExhausted   no space, quota
//   kPermissionDenied    read-only, not allowed
//   kUnavailable         temporary: descriptors or memory are used up, a server does not answer
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
  virtual ~WritableFile() = default;  // Closes the file. Data that was not synced may be lost.
  virtual absl::Status Append(std::string_view bytes) = 0;
  // Writes at `offset`, which may be beyond the end. Bytes that were never written read as zeros.
  // Thread-safe. Must not be mixed with Append.
  virtual absl::Status WriteAt(int64_t offset, std::string_view bytes) = 0;
  // Returns when everything appended so far is on the disk.
  virtual absl::Status Sync() = 0;
  virtual absl::Status Close() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual int64_t size() const = 0;
  // Reads exactly `size` bytes from `offset` on. Returns kOutOfRange where the file is shorter.
  virtual absl::Status ReadAt(int64_t offset, size_t size, char* out) const = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Replaces an existing file.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;
  // Returns names.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;
  virtual absl::StatusOr<bool> Exists(const std::string& path) = 0;
  // Returns OK where the directory exists, and kNotFound where its parent does not.
  virtual absl::Status MakeDirectory(const std::string& path) = 0;
  // Atomic. A file replaces an existing file. A directory replaces nothing (kAlreadyExists).
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Removes a file, or a directory with its contents.
  virtual absl::Status Remove(const std::string& path) = 0;
  // Returns when the directory's entries (creations, renames) are on the disk.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
};

// Returns the real file system, which is never destroyed.
FileSystem& PosixFileSystem();

// Reads a whole small file.
absl::StatusOr<std::string> ReadFile(FileSystem& files, const std::string& path);
// Makes a directory and its parents. Returns when the new ones are on the disk.
absl::Status MakeDirectories(FileSystem& files, const std::string& path);

std::string JoinPath(std::string_view directory, std::string_view name);
std::string BaseName(std::string_view path);  // Returns "c" for "/a/b/c" and "/a/b/c/".
// Returns "/a/b" for "/a/b/c", "." for "c" and "/" for "/c".
std::string ParentPath(std::string_view path);

}  // namespace muster::checkpoint
