// The processes of one host, over a segment: memory of the caller is copied through staging slots
// in cache-sized chunks, memory in the arenas is reduced where it lies. Internal.
#pragma once

#include <memory>
#include <vector>

#include "common/collective/engine.h"
#include "common/collective/links.h"
#include "common/collective/segment.h"
#include "common/collective/team.h"

namespace muster::collective {

// Slots of every staging area, and by how many chunks the phases of the pipeline are apart: a rank
// may run that far ahead of another without waiting.
inline constexpr int kSkew = 2, kSlots = 2 * kSkew;
SegmentLayout HostLayout(int ranks);

class HostTeam {
 public:
  // `ranks`: of this host, in the group. `links` tell about lost ones: each rank watches over those
  // of its host that it is linked with, and its reason reaches the others through the segment.
  HostTeam(std::shared_ptr<Segment> segment, std::vector<int> ranks, Links* links, bool spin);

  int rank() const { return team_.rank(); }
  int size() const { return team_.size(); }
  // parts[i] belongs to the host's i-th rank.
  absl::Status Run(const Plan& plan, const Signature& signature, MonotonicTime deadline);
  // Ends the operation of every rank of the host; the first one's reason is what all hear.
  void Poison(const absl::Status& why);
  // After a Run that ended with Superseded: the reason of the rank that gave up.
  absl::Status Reason() const;
  std::shared_ptr<void> AllocateReducible(int64_t bytes);

 private:
  TeamOptions Options(bool spin);
  absl::Status Check(const TeamOptions::Awaited& awaited, const Signature& signature,
                     MonotonicTime started);
  absl::Status RunStaged(const Plan& plan, MonotonicTime deadline);
  // In the staging area of `owner`: its contribution to `part` (another's), its result.
  std::byte* InSlot(int owner, int64_t chunk, int part) const;
  std::byte* OutSlot(int owner, int64_t chunk) const;
  void CopyIn(const Plan& plan, int64_t chunk);
  void Produce(const Plan& plan, int64_t chunk);
  void CopyOut(const Plan& plan, int64_t chunk);

  const std::shared_ptr<Segment> segment_;
  const std::vector<int> ranks_;
  Links* const links_;
  Team team_;
  const int64_t slot_bytes_;
};

std::unique_ptr<Engine> MakeSharedMemoryEngine(std::unique_ptr<Links> links,
                                               std::shared_ptr<Segment> segment, bool spin);
// `segment` is null where this rank is alone on its host.
std::unique_ptr<Engine> MakeHierarchicalEngine(std::unique_ptr<Links> links,
                                               std::shared_ptr<Segment> segment, bool spin);

}  // namespace muster::collective
