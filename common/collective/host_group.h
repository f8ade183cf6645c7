// The processes of one host that share a segment. Caller memory is copied through staging slots in
// cache-sized chunks. Memory in the arenas is reduced in place. Internal.
#pragma once

#include <memory>
#include <vector>

#include "common/collective/engines/engine.h"
#include "common/collective/links.h"
#include "common/collective/segment.h"
#include "common/collective/shared_memory_group.h"

namespace muster::collective {

// kSkew is the number of chunks between two phases of the pipeline. A rank may run that far ahead
// of another without waiting. kSlots is the number of slots in every staging area.
inline constexpr int kSkew = 2, kSlots = 2 * kSkew;
SegmentLayout HostLayout(int ranks);

class HostGroup {
 public:
  // `ranks` are the group ranks of this host. `links` reports lost ranks. Each rank watches the
  // ranks of its host that it is linked with, and passes its reason to the others through the
  // segment.
  HostGroup(std::shared_ptr<Segment> segment, std::vector<int> ranks, Links* links, bool spin);

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  // Requires that parts[i] belongs to the host's i-th rank.
  absl::Status Run(const Plan& plan, const Signature& signature, MonotonicTime deadline);
  // Ends the operation of every rank of the host. All ranks get the reason of the first rank that
  // called it.
  void Poison(const absl::Status& why);
  // Returns the reason of the rank that gave up. Called after a Run that ended with Superseded.
  absl::Status Reason() const;
  std::shared_ptr<void> AllocateReducible(int64_t bytes);

 private:
  SharedMemoryGroupOptions Options(bool spin);
  absl::Status Check(const SharedMemoryGroupOptions::Awaited& awaited, const Signature& signature,
                     MonotonicTime started);
  absl::Status RunStaged(const Plan& plan, MonotonicTime deadline);
  // Slots in the staging area of `owner`: InSlot holds its contribution to another rank's `part`,
  // OutSlot its result.
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
// `segment` is null where this rank is alone on its host.
std::unique_ptr<Engine> MakeHierarchicalEngine(std::unique_ptr<Links> links,
                                               std::shared_ptr<Segment> segment, bool spin);

}  // namespace muster::collective
