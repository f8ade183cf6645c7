// A shared-memory segment for the processes of one host in one generation. Internal.
//
// The segment contains the cells of the ranks (shared_memory_group.h), staging areas for copied
// data, the reason of the first rank that gave up, and one arena for each rank. An arena provides
// the memory of AllocateReducible, and only its allocated parts use memory. The segment's name is
// derived from generation and ticket. The name is removed as soon as all ranks have mapped the
// segment, so a later crash leaves nothing behind.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/collective/shared_memory_group.h"
#include "common/transport/counted_stream.h"

namespace muster::collective {

struct SegmentLayout {
  int ranks = 0;                           // The number of ranks on this host.
  int64_t staging_bytes = 3 << 19;         // For each rank.
  int64_t arena_bytes = int64_t{1} << 36;  // Address space for each rank.
};

struct SharedReason;

class Segment {
 public:
  // The first rank on the host creates the segment, and the other ranks open it. An error (no room,
  // no permission, no address space) is one sentence. The caller logs it and uses TCP instead.
  static absl::StatusOr<std::shared_ptr<Segment>> Create(const std::string& name,
                                                         const SegmentLayout& layout);
  static absl::StatusOr<std::shared_ptr<Segment>> Open(const std::string& name,
                                                       const SegmentLayout& layout);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Removes the name. Mappings stay valid. The destructor calls it in the process that created the
  // segment.
  void Unlink();
  // Removes segments of processes that were killed before they called Unlink.
  static void SweepAbandoned();

  std::span<Cell> cells() const;
  std::byte* staging(int rank) const;
  const SegmentLayout& layout() const { return layout_; }

  // Records why `rank` gives up. Only the first call has an effect. Must be called before the other
  // ranks are woken. In this class, `rank` is the index of a rank among those on this host.
  void GiveReason(int rank, const absl::Status& why);
  struct Reason {
    int rank = 0;
    uint32_t code = 0;
    std::string text;
  };
  std::optional<Reason> reason() const;

  // Where HostGroup counts the bytes that pass through the segment. May be null, as at first.
  void set_traffic(std::shared_ptr<transport::Traffic> traffic) { traffic_ = std::move(traffic); }
  transport::Traffic* traffic() const { return traffic_.get(); }

  // Returns the beginning of the arena of `rank`, which has offset 0.
  std::byte* arena(int rank) const;
  // Allocates memory in the arena of `rank` and returns its offset. Returns -1 if the arena or
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
  std::shared_ptr<transport::Traffic> traffic_;
  absl::Mutex mutex_;
  int64_t allocated_ ABSL_GUARDED_BY(mutex_) = 0;  // Bytes in the arena of this process's rank.
};

}  // namespace muster::collective
