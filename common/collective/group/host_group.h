// Runs operations among the processes of one host through a shared-memory segment (segment.h).
// Buffers in an arena of the segment are reduced in place. Other buffers are copied through slots
// of the segment's staging areas, in chunks. A chunk is a piece of a buffer that fits in a slot and
// in the processor's cache. Internal.
#pragma once

#include <memory>
#include <vector>

#include "common/collective/engines/engine.h"
#include "common/collective/group/links.h"
#include "common/collective/group/segment.h"
#include "common/collective/group/shared_memory_group.h"

namespace muster::collective {

// A chunk passes through three phases: copy in, reduce, copy out. In iteration k, a rank copies
// chunk k into a slot, reduces chunk k - kSkew, and copies chunk k - 2 * kSkew out. A rank can
// therefore be kSkew iterations ahead of another rank without waiting. kSlots is the number of
// consecutive chunks that have different slots in a staging area.
inline constexpr int kSkew = 2, kSlots = 2 * kSkew;
SegmentLayout HostLayout(int ranks);

class HostGroup {
 public:
  // `ranks` are the ranks on this host. `links` reports lost ranks. Each rank watches only those
  // ranks of its host to which it has a link. A rank that gives up passes its reason to the other
  // ranks through the segment.
  HostGroup(std::shared_ptr<Segment> segment, std::vector<int> ranks, Links* links, bool spin);

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  // Runs `plan` and blocks until it is done. REQUIRES: plan.parts[i] belongs to the host's i-th
  // rank.
  absl::Status Run(const Plan& plan, const Signature& signature, MonotonicTime deadline);
  // Ends the operation on every rank of the host. All ranks get the reason of the first rank that
  // called Poison.
  void Poison(const absl::Status& why);
  // Returns the reason of the first rank that gave up. Called after Run has returned Superseded.
  absl::Status Reason() const;
  std::shared_ptr<void> AllocateReducible(int64_t bytes);

 private:
  SharedMemoryGroupOptions Options(bool spin);
  absl::Status Check(const SharedMemoryGroupOptions::Awaited& awaited, const Signature& signature,
                     MonotonicTime started);
  absl::Status Exchange(const Plan& plan, const Signature& signature, MonotonicTime deadline);
  absl::Status RunStaged(const Plan& plan, MonotonicTime deadline);
  // Return the slots of `chunk` in the staging area of the rank `owner`. InSlot has the owner's
  // values for the part that the rank `part` reduces. OutSlot has the owner's result.
  std::byte* InSlot(int owner, int64_t chunk, int part) const;
  std::byte* OutSlot(int owner, int64_t chunk) const;
  void CopyIn(const Plan& plan, int64_t chunk);
  void Produce(const Plan& plan, int64_t chunk);
  void CopyOut(const Plan& plan, int64_t chunk);

  const std::shared_ptr<Segment> segment_;
  const std::vector<int> ranks_;
  Links* const links_;
  SharedMemoryGroup group_;
  const int64_t slot_bytes_;
};

std::unique_ptr<Engine> MakeSharedMemoryEngine(std::unique_ptr<Links> links,
                                               std::shared_ptr<Segment> segment, bool spin);
// `segment` is null if this rank is the only one on its host.
std::unique_ptr<Engine> MakeHierarchicalEngine(std::unique_ptr<Links> links,
                                               std::shared_ptr<Segment> segment, bool spin);

}  // namespace muster::collective
