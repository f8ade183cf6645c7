// A shared-memory segment of the processes of one host and one generation: cells, staging slots
// for copied data, and for each rank an arena that takes up no memory until parts of it are
// allocated; and the reason of the first rank that gave up. Named after generation and ticket,
// unlinked as soon as all have mapped it; after that nothing is left behind whoever dies. Internal.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/collective/team.h"

namespace muster::collective {

struct SegmentLayout {
  int ranks = 0;                           // of this host
  int64_t staging_bytes = 3 << 19;         // of each rank
  int64_t arena_bytes = int64_t{1} << 36;  // of each rank, address space only
};

struct SharedReason;

class Segment {
 public:
  // Made by the first rank, opened by the others. An error (no room, no permission, no address
  // space) is a sentence for the log: the caller falls back.
  static absl::StatusOr<std::shared_ptr<Segment>> Create(const std::string& name,
                                                         const SegmentLayout& layout);
  static absl::StatusOr<std::shared_ptr<Segment>> Open(const std::string& name,
                                                       const SegmentLayout& layout);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Removes the name; mappings stay. The creator does so at the latest in its destructor.
  void Unlink();
  // Removes what killed processes left behind between creating and unlinking.
  static void SweepAbandoned();

  std::span<Cell> cells() const;
  std::byte* staging(int rank) const;
  const SegmentLayout& layout() const { return layout_; }

  // Why `rank` (of the host) gives up: what the others hear, if it is the first. To be called
  // before they are woken.
  void GiveReason(int rank, const absl::Status& why);
  struct Reason {
    int rank = 0;  // of the host
    uint32_t code = 0;
    std::string text;
  };
  std::optional<Reason> reason() const;

  // Offsets count from the beginning of the arena of `rank`.
  std::byte* arena(int rank) const;
  // Memory in the arena of `rank`; -1 when it or /dev/shm is full. Any thread.
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
  bool linked_;  // this process is to unlink it
  std::byte* base_ = nullptr;
  absl::Mutex mutex_;
  int64_t allocated_ ABSL_GUARDED_BY(mutex_) = 0;  // in the arena of this process's rank
};

}  // namespace muster::collective
