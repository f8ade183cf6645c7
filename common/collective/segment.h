// A shared-memory segment of the processes of one host and one generation. Internal.
//
// It holds cells, staging slots for copied data, the reason of the first rank that gave up, and one
// arena for each rank. An arena uses memory only for its allocated parts. The segment's name
// derives from generation and ticket. It is unlinked as soon as all ranks have mapped it, so that a
// later crash leaves nothing behind.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/collective/shared_memory_group.h"

namespace muster::collective {

struct SegmentLayout {
  int ranks = 0;                           // Of this host.
  int64_t staging_bytes = 3 << 19;         // For each rank.
  int64_t arena_bytes = int64_t{1} << 36;  // For each rank, address space only.
};

struct SharedReason;

class Segment {
 public:
  // The first rank creates the segment, the others open it. An error (no room, no permission, no
  // address space) is a sentence for the log, and the caller falls back to TCP.
  static absl::StatusOr<std::shared_ptr<Segment>> Create(const std::string& name,
                                                         const SegmentLayout& layout);
  static absl::StatusOr<std::shared_ptr<Segment>> Open(const std::string& name,
                                                       const SegmentLayout& layout);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Removes the name. Mappings stay. The creator's destructor calls it at the latest.
  void Unlink();
  // Removes segments of processes that were killed between creating and unlinking.
  static void SweepAbandoned();

  std::span<Cell> cells() const;
  std::byte* staging(int rank) const;
  const SegmentLayout& layout() const { return layout_; }

  // Records why `rank` (its number on this host) gives up. The others receive the reason of the
  // first rank that calls it. Call it before waking them.
  void GiveReason(int rank, const absl::Status& why);
  struct Reason {
    int rank = 0;  // Its number on this host.
    uint32_t code = 0;
    std::string text;
  };
  std::optional<Reason> reason() const;

  // Returns the arena of `rank`. Offsets count from here.
  std::byte* arena(int rank) const;
  // Allocates memory in the arena of `rank` and returns its offset. Returns -1 when the arena or
  // /dev/shm is full. Thread-safe.
  int64_t Allocate(int rank, int64_t bytes);
  void Free(int rank, int64_t offset, int64_t bytes);

 private:
  Segment(std::string name, const SegmentLayout& layout, int fd, bool created);
  absl::Status Map();
  int64_t FixedBytes() const;
  int64_t StagingOffset() const;
  SharedReason& shared_reason() const { return *reinterpret_cast<SharedReason*>(base_); }

  const std::string name_;
  const SegmentLayout layout_;
  const int fd_;
  bool linked_;  // True while this process must unlink the segment.
  std::byte* base_ = nullptr;
  absl::Mutex mutex_;
  int64_t allocated_ ABSL_GUARDED_BY(mutex_) = 0;  // In the arena of this process's rank.
};

}  // namespace muster::collective
