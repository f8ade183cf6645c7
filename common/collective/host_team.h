// The processes of one host, over a segment: memory of the caller is copied through staging slots
// in cache-sized chunks, memory in the arenas is reduced where it lies. Internal.
#pragma once

#include <memory>
#include <vector>

#include "common/collective/engine.h"
#include "common/collective/mesh.h"
#include "common/collective/segment.h"
#include "common/collective/team.h"

namespace muster::collective {

// Slots of every staging area, and by how many chunks the phases of the pipeline are apart: a rank
// may run that far ahead of another without waiting.
inline constexpr int kSkew = 2, kSlots = 2 * kSkew;
SegmentLayout HostLayout(int ranks);

class HostTeam {
 public:
  // `ranks`: of this host, in the group; `mesh` tells about lost ones.
  HostTeam(std::shared_ptr<Segment> segment, std::vector<int> ranks, Mesh* mesh, bool spin);

  int rank() const { return team_.rank(); }
  int size() const { return team_.size(); }
  // parts[i] belongs to the host's i-th rank.
  absl::Status Run(const Plan& plan, const Signature& signature, MonotonicTime deadline);
  void Poison() { team_.Poison(); }
  std::shared_ptr<void> AllocateReducible(int64_t bytes);

 private:
  TeamOptions Options(const std::vector<int>& ranks, bool spin);
  absl::Status RunStaged(const Plan& plan, MonotonicTime deadline);
  // In the staging area of `owner`: its contribution to `part` (another's), its result.
  std::byte* InSlot(int owner, int64_t chunk, int part) const;
  std::byte* OutSlot(int owner, int64_t chunk) const;
  void CopyIn(const Plan& plan, int64_t chunk);
  void Produce(const Plan& plan, int64_t chunk);
  void CopyOut(const Plan& plan, int64_t chunk);

  const std::shared_ptr<Segment> segment_;
  Mesh* const mesh_;
  Team team_;
  const int64_t slot_bytes_;
};

std::unique_ptr<Engine> MakeSharedMemoryEngine(std::unique_ptr<Mesh> mesh,
                                               std::shared_ptr<Segment> segment, bool spin);
// `hosts`: ranks by host. `segment` is null where this rank is alone on its host.
std::unique_ptr<Engine> MakeHierarchicalEngine(std::unique_ptr<Mesh> mesh,
                                               std::shared_ptr<Segment> segment,
                                               std::vector<std::vector<int>> hosts, bool spin);

}  // namespace muster::collective
