// The file system, as a seam: what checkpoints are written through, so that a test can crash it,
// fill it or take it away between any two operations (memory_file_system.h is the twin that
// forgets what was not synced). All methods may be called from any thread.
//
// Errors name the path and say what the system said: kNotFound (no such file), kAlreadyExists,
// kResourceExhausted (no space, quota), kPermissionDenied (read-only, not allowed),
// kUnavailable (not just now: descriptors or memory are used up, a server does not answer),
// kInternal (anything else). What they mean for the process is the caller's to say.
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
  virtual ~WritableFile() = default;  // Closes; what was not synced may be lost.
  virtual absl::Status Append(std::string_view bytes) = 0;
  // At this place, which may lie behind the end; what nobody has written reads as zeros. Any
  // thread; not together with Append.
  virtual absl::Status WriteAt(int64_t offset, std::string_view bytes) = 0;
  // Everything appended so far is on the disk when it returns.
  virtual absl::Status Sync() = 0;
  virtual absl::Status Close() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual int64_t size() const = 0;
  // Exactly `size` bytes from `offset` on; kOutOfRange where the file is shorter.
  virtual absl::Status ReadAt(int64_t offset, size_t size, char* out) const = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Replaces a file that is there.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;  // names
  virtual absl::StatusOr<bool> Exists(const std::string& path) = 0;
  // OK where it is there already. Its parent must be there: kNotFound.
  virtual absl::Status MakeDirectory(const std::string& path) = 0;
  // Atomic. A file replaces a file; a directory replaces nothing (kAlreadyExists).
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // A file, or a directory with all in it.
  virtual absl::Status Remove(const std::string& path) = 0;
  // The directory's entries (creations, renames) are on the disk when it returns.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
};

// The real one. Lives for ever.
FileSystem& PosixFileSystem();

// A whole small file.
absl::StatusOr<std::string> ReadFile(FileSystem& files, const std::string& path);
// With parents; those that it makes are on the disk when it returns.
absl::Status MakeDirectories(FileSystem& files, const std::string& path);

std::string JoinPath(std::string_view directory, std::string_view name);
std::string BaseName(std::string_view path);    // "c" of "/a/b/c" and "/a/b/c/"
std::string ParentPath(std::string_view path);  // "/a/b"; "." of "c", "/" of "/c"

}  // namespace muster::checkpoint
