// An in-memory file system for tests. A test can act or fail before any operation, limit the
// capacity, and simulate a crash. A crash loses data that was not synced, as on a disk.
//
// After a crash, a file has the bytes that its last Sync covered. Bytes that were written after
// that Sync may be present, missing or zero, as after a crash of a real kernel. A change of a
// directory is a creation, a rename or the removal of one file. If the directory was synced after
// the change, the change is present. Any subset of the other changes may be present. A rename is
// one change of both directories.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/files/file_system.h"

namespace muster::checkpoint {

// Thread-safe.
class MemoryFileSystem : public FileSystem {
 public:
  struct Operation {
    int64_t number = 0;     // From 0.
    std::string_view name;  // "Create", "Append", "Sync", "Rename", and so on.
    std::string path;
    bool changes = false;  // False for an operation that only reads.
  };
  // Which unsynced changes survive a crash: none, a random subset, or all.
  enum class Crash { kSyncedOnly, kRandom, kAll };

  MemoryFileSystem();
  ~MemoryFileSystem() override;

  // Sets a function that is called before each operation, without a lock. If it returns an error,
  // the operation does nothing and returns that error. The function may use this file system.
  // Operations that the function makes are counted, but do not call the function again.
  void SetBefore(std::function<absl::Status(const Operation&)> before);
  int64_t operations() const;
  // Limits the total size of all files. A write beyond the limit writes the part that fits, and
  // returns kResourceExhausted.
  void SetCapacity(int64_t bytes);
  // Simulates a crash and a reboot of the machine. Open files become unusable.
  void CrashNow(Crash crash, uint32_t seed);
  // Replaces the content of a file, for tests of damaged files. A crash does not undo the change.
  absl::Status Overwrite(const std::string& path, std::string bytes);

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  absl::StatusOr<bool> Exists(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;

 private:
  struct Node;
  struct Change;
  struct Entry;
  class Writer;
  class Reader;
  using NodePtr = std::shared_ptr<Node>;

  absl::Status Begin(std::string_view name, const std::string& path, bool changes);
  NodePtr FindLocked(const std::string& path) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Entry> ParentLocked(std::string_view doing, const std::string& path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveTreeLocked(NodePtr directory, std::string name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplyLocked(const Change& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Appends if `offset` is nullopt.
  absl::Status Write(Node& file, const std::string& path, std::optional<int64_t> offset,
                     std::string_view bytes);

  mutable absl::Mutex mutex_;
  std::function<absl::Status(const Operation&)> before_ ABSL_GUARDED_BY(mutex_);
  bool telling_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t operations_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t capacity_ ABSL_GUARDED_BY(mutex_);
  int64_t crashes_ ABSL_GUARDED_BY(mutex_) = 0;
  NodePtr root_ ABSL_GUARDED_BY(mutex_);
  // The unsynced changes of directories, in order.
  std::vector<Change> pending_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::checkpoint
