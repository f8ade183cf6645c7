// The file system's twin in memory, for tests: it counts operations, lets a test act or fail before
// any of them, fills up, and forgets at a crash what was not synced, as a disk does.
//
// What a crash may leave: a file's bytes are those of its last Sync, or (as the kernel may have
// written more) a longer beginning of what was appended, or zeros in its place. An entry of a
// directory (a creation, a rename, one removed file of a removed tree) is there once its directory
// was synced; of the others any may have reached the disk and any not. A rename is one change of
// both directories.
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
#include "common/checkpoint/file_system.h"

namespace muster::checkpoint {

// All methods may be called from any thread.
class MemoryFileSystem : public FileSystem {
 public:
  struct Operation {
    int64_t number = 0;     // from 0
    std::string_view name;  // "Create", "Append", "Sync", "Rename", ...
    std::string path;
    bool changes = false;  // else it only reads
  };
  enum class Crash { kSyncedOnly, kRandom, kAll };

  MemoryFileSystem();
  ~MemoryFileSystem() override;

  // Called before each operation, without a lock: it may use this object itself (those operations
  // are counted, but not told again). What it returns, where not OK, is the operation's outcome,
  // which then does nothing.
  void SetBefore(std::function<absl::Status(const Operation&)> before);
  int64_t operations() const;
  // Bytes of all files; appending more is kResourceExhausted, after what still fits.
  void SetCapacity(int64_t bytes);
  // The machine stops and comes back: open files are lost, the rest as said above.
  void CrashNow(Crash crash, uint32_t seed);
  // Puts other bytes on the disk, for a test that damages them.
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
                     std::string_view bytes);  // nullopt: at its end

  mutable absl::Mutex mutex_;
  std::function<absl::Status(const Operation&)> before_ ABSL_GUARDED_BY(mutex_);
  bool telling_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t operations_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t capacity_ ABSL_GUARDED_BY(mutex_);
  int64_t crashes_ ABSL_GUARDED_BY(mutex_) = 0;
  NodePtr root_ ABSL_GUARDED_BY(mutex_);
  std::vector<Change> pending_ ABSL_GUARDED_BY(mutex_);  // of directories, in order, not synced
};

}  // namespace muster::checkpoint
