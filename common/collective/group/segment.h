// A shared-memory segment for the processes of one host in one generation (a period of training
// with fixed members). Internal.
//
// The segment contains the cells through which ranks synchronize (shared_memory_group.h), staging
// areas for copied data, the reason of the first rank that gives up, and one arena for each rank.
// An arena is a range of addresses for AllocateReducible. Only the allocated parts of an arena use
// memory. The segment's name is derived from the generation's id and ticket (formation.h). The
// ranks remove the name as soon as all of them have mapped the segment, so a later crash leaves
// nothing behind.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/collective/group/shared_memory_group.h"
#include "common/transport/counted_stream.h"

namespace muster::collective {

struct SegmentLayout {
  int ranks = 0;                           // The number of ranks on this host.
  int64_t staging_bytes = 3 << 19;         // The size of each rank's staging area.
  int64_t arena_bytes = int64_t{1} << 36;  // The size of each rank's arena.
};

struct SharedReason;

class Segment {
 public:
  // The host's first rank calls Create, and the other ranks call Open. An error (no room, no
  // permission, no address space) has a message of one sentence. The caller logs it and uses TCP.
  static absl::StatusOr<std::shared_ptr<Segment>> Create(const std::string& name,
                                                         const SegmentLayout& layout);
  static absl::StatusOr<std::shared_ptr<Segment>> Open(const std::string& name,
                                                       const SegmentLayout& layout);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Removes the name. Mappings stay valid. In the process that created the segment, the destructor
  // calls Unlink if this process has not called it.
  void Unlink();
  // Removes segments of processes that were killed before they called Unlink.
  static void SweepAbandoned();

  std::span<Cell> cells() const;
  std::byte* staging(int rank) const;
  const SegmentLayout& layout() const { return layout_; }

  // Records the error with which `rank` gives up. In this class, a rank is an index among the ranks
  // on this host. Only the first call by any rank has an effect. A rank must call GiveReason before
  // it wakes the other ranks.
  void GiveReason(int rank, const absl::Status& why);
  struct Reason {
    int rank = 0;
    uint32_t code = 0;
    std::string text;
  };
  std::optional<Reason> reason() const;

  // Sets the counter of the bytes that pass through the segment. HostGroup adds to the counter.
  // `traffic` may be null. The default is null.
  void set_traffic(std::shared_ptr<transport::Traffic> traffic) { traffic_ = std::move(traffic); }
  transport::Traffic* traffic() const { return traffic_.get(); }

  // Returns the address of the arena of `rank`. Offsets count from this address.
  std::byte* arena(int rank) const;
  // Allocates memory in the arena of `rank`, and returns the offset of the memory. Returns -1 if
  // the arena or /dev/shm is full. Thread-safe.
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
  // The number of bytes that Allocate has taken from the arena of this process's rank.
  int64_t allocated_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster::collective
