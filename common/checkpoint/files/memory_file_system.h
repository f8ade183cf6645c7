// An in-memory file system for tests. It counts operations, lets a test act or fail before any of
// them, and can be full. At a crash it loses what was not synced, as a disk does.
//
// A crash may leave these states. A file has the bytes of its last Sync, or a longer prefix of what
// was written, because the kernel may have written more. Zeros may take the place of the rest. A
// directory entry (a creation, a rename, one removed file of a removed tree) is present once its
// directory was synced. Any subset of the other entries may have reached the disk. A rename changes
// both directories at once.
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
    std::string_view name;  // Such as "Create", "Append", "Sync", "Rename".
    std::string path;
    bool changes = false;  // False for an operation that only reads.
  };
  enum class Crash { kSyncedOnly, kRandom, kAll };

  MemoryFileSystem();
  ~MemoryFileSystem() override;

  // Called before each operation, without a lock. The callback may use this file system: those
  // operations are counted, but do not call it again. If it returns an error, the operation fails
  // with that error and does nothing.
  void SetBefore(std::function<absl::Status(const Operation&)> before);
  int64_t operations() const;
  // Limits the bytes of all files. An append beyond it writes what still fits and returns
  // kResourceExhausted.
  void SetCapacity(int64_t bytes);
  // Simulates a crash and a reboot of the machine: open files are lost, and the rest follows the
  // rules above.
  void CrashNow(Crash crash, uint32_t seed);
  // Replaces the bytes on the disk, for a test that damages them.
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
  absl::Status Write(Node& file, const std::string& path, std::optional<int64_t> offset,
                     // nullopt appends.
                     std::string_view bytes);

  mutable absl::Mutex mutex_;
  std::function<absl::Status(const Operation&)> before_ ABSL_GUARDED_BY(mutex_);
  bool telling_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t operations_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t capacity_ ABSL_GUARDED_BY(mutex_);
  int64_t crashes_ ABSL_GUARDED_BY(mutex_) = 0;
  NodePtr root_ ABSL_GUARDED_BY(mutex_);
  // Unsynced changes of directories, in order.
  std::vector<Change> pending_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::checkpoint
