#include "common/collective/group/host_group.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace muster::collective {
namespace {

constexpr int64_t kStagingBytes = 1 << 20;  // For each rank: half of a usual L2 cache.
constexpr int64_t kMinSlotBytes = 4096;
constexpr Duration kReasonWithin = std::chrono::milliseconds(300);

// Returns the number of elements in chunk `chunk` of a part with `count` elements.
int64_t ChunkCount(int64_t count, int64_t chunk, int64_t chunk_elements) {
  return std::clamp<int64_t>(count - chunk * chunk_elements, 0, chunk_elements);
}

}  // namespace

SegmentLayout HostLayout(int ranks) {
  SegmentLayout layout;
  layout.ranks = ranks;
  layout.staging_bytes = std::max(kStagingBytes, kSlots * ranks * kMinSlotBytes);
  // A process has 47 bits of addresses, which all arenas share.
  while (layout.arena_bytes * ranks > (int64_t{1} << 44)) layout.arena_bytes /= 2;
  return layout;
}

HostGroup::HostGroup(std::shared_ptr<Segment> segment, std::vector<int> ranks, Links* links,
                     bool spin)
    : segment_(std::move(segment)),
      ranks_(std::move(ranks)),
      links_(links),
      group_(Options(spin)),
      slot_bytes_(segment_->layout().staging_bytes / (kSlots * segment_->layout().ranks) /
                  kMinSlotBytes * kMinSlotBytes) {}

SharedMemoryGroupOptions HostGroup::Options(bool spin) {
  SharedMemoryGroupOptions options;
  options.cells = segment_->cells();
  options.spin = spin;
  options.processes = true;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i] == links_->rank()) options.rank = static_cast<int>(i);
    options.names.push_back(links_->Name(ranks_[i]));
  }
  options.address = [segment = segment_.get()](int rank, int64_t where) {
    return segment->arena(rank) + where;
  };
  options.check = [this](const auto& awaited, const Signature& signature, MonotonicTime started) {
    return Check(awaited, signature, started);
  };
  return options;
}

absl::Status HostGroup::Check(const SharedMemoryGroupOptions::Awaited& awaited,
                              const Signature& signature, MonotonicTime started) {
  for (int i = 0; i < size(); ++i) {
    if (!awaited(i)) links_->RecordPresence(ranks_[i], signature.sequence);
  }
  if (Clock::now() - started > Links::kAnnouncePresenceAfter) links_->AnnouncePresence(signature);
  MUSTER_RETURN_IF_ERROR(links_->ReadNotices());
  for (int i = 0; i < size(); ++i) {
    // A rank that has joined may already have finished its last operation and left.
    if (i == rank() || !links_->Closed(ranks_[i]) || !awaited(i)) continue;
    return PeerLost(
        fmt::format("Lost {}: it closed its data connection.", links_->Name(ranks_[i])));
  }
  return absl::OkStatus();
}

void HostGroup::Poison(const absl::Status& why) {
  segment_->GiveReason(rank(), why);
  group_.Poison();
}

absl::Status HostGroup::Reason() const {
  // A rank writes its reason before it poisons the group. A rank may die while it writes, so the
  // wait is bounded.
  const MonotonicTime until = Clock::now() + kReasonWithin;
  std::optional<Segment::Reason> reason;
  while (!(reason = segment_->reason()) && Clock::now() < until) sched_yield();
  if (!reason) return PeerLost("Another rank of this host gave up.");
  const size_t rank = std::clamp<size_t>(reason->rank, 0, ranks_.size() - 1);
  return FailureFromNotice(reason->code, reason->text, links_->Name(ranks_[rank]));
}

std::shared_ptr<void> HostGroup::AllocateReducible(int64_t bytes) {
  const int64_t offset = segment_->Allocate(rank(), bytes);
  if (offset < 0) return nullptr;
  // The deleter owns the segment, so the memory stays mapped after the communicator is destroyed.
  return {segment_->arena(rank()) + offset, [segment = segment_, rank = rank(), offset,
                                             bytes](void*) { segment->Free(rank, offset, bytes); }};
}

absl::Status HostGroup::Run(const Plan& plan, const Signature& signature, MonotonicTime deadline) {
  MUSTER_RETURN_IF_ERROR(Exchange(plan, signature, deadline));
  if (segment_->traffic() != nullptr) {
    const Bytes bytes = TrafficOf(plan, rank());
    segment_->traffic()->Add(bytes.sent, bytes.received);
  }
  return absl::OkStatus();
}

absl::Status HostGroup::Exchange(const Plan& plan, const Signature& signature,
                                 MonotonicTime deadline) {
  if (SharedMemoryGroup::ContributionBytes(plan) <= kSmallBytes) {
    MUSTER_RETURN_IF_ERROR(group_.Begin(signature, -1, group_.Small(plan), deadline));
    group_.RunSmall(plan);
    return absl::OkStatus();
  }
  const std::byte* arena = segment_->arena(rank());
  int64_t where = -1;
  if (plan.base != nullptr && plan.base >= arena &&
      plan.base < arena + segment_->layout().arena_bytes) {
    const std::byte* from = SharedMemoryGroup::DirectBase(plan, rank());
    where = (from == nullptr ? plan.base : from) - arena;
  }
  MUSTER_RETURN_IF_ERROR(group_.Begin(signature, where, {}, deadline));
  bool direct = true;
  for (int r = 0; r < size(); ++r) direct &= group_.WhereOf(r) >= 0;
  return direct ? group_.RunDirect(plan, deadline) : RunStaged(plan, deadline);
}

std::byte* HostGroup::InSlot(int owner, int64_t chunk, int part) const {
  const int64_t index = (chunk % kSlots) * (size() - 1) + (part < owner ? part : part - 1);
  return segment_->staging(owner) + index * slot_bytes_;
}

std::byte* HostGroup::OutSlot(int owner, int64_t chunk) const {
  return segment_->staging(owner) + (kSlots * (size() - 1) + chunk % kSlots) * slot_bytes_;
}

void HostGroup::CopyIn(const Plan& plan, int64_t chunk) {
  const int64_t element = SizeOf(plan.type), elements = slot_bytes_ / element;
  for (int p = 0; p < size(); ++p) {
    const int64_t n = ChunkCount(plan.parts[p].count, chunk, elements);
    if (p == rank() || n == 0) continue;
    std::memcpy(InSlot(rank(), chunk, p), plan.parts[p].send + chunk * slot_bytes_, n * element);
  }
}

void HostGroup::Produce(const Plan& plan, int64_t chunk) {
  const int64_t element = SizeOf(plan.type), elements = slot_bytes_ / element;
  const RankPart& mine = plan.parts[rank()];
  const int64_t n = ChunkCount(mine.count, chunk, elements), at = chunk * slot_bytes_;
  if (n == 0) return;
  if (!plan.reduce) {
    std::memcpy(OutSlot(rank(), chunk), mine.send + at, n * element);
    if (mine.receive != mine.send) std::memmove(mine.receive + at, mine.send + at, n * element);
    return;
  }
  std::vector<const void*> sources(size());
  for (int r = 0; r < size(); ++r) {
    sources[r] = r == rank() ? mine.send + at : InSlot(r, chunk, rank());
  }
  void* outs[] = {mine.receive + at, plan.gather ? OutSlot(rank(), chunk) : nullptr};
  ReduceElements({outs, plan.gather ? size_t{2} : size_t{1}}, sources, n, plan.type,
                 plan.reduction);
}

void HostGroup::CopyOut(const Plan& plan, int64_t chunk) {
  const int64_t element = SizeOf(plan.type), elements = slot_bytes_ / element;
  for (int p = 0; p < size(); ++p) {
    const int64_t n = ChunkCount(plan.parts[p].count, chunk, elements);
    if (p == rank() || n == 0) continue;
    std::memcpy(plan.parts[p].receive + chunk * slot_bytes_, OutSlot(p, chunk), n * element);
  }
}

// In iteration k, a rank copies in its chunk k, reduces chunk k-kSkew of its own part, and copies
// out chunk k-2*kSkew of the results. Before iteration k, it waits until all ranks have finished
// iteration k-kSkew. No rank then uses the previous chunk of a slot (k-kSlots) any more.
absl::Status HostGroup::RunStaged(const Plan& plan, MonotonicTime deadline) {
  const int64_t elements = slot_bytes_ / SizeOf(plan.type);
  int64_t chunks = 0;
  for (const RankPart& part : plan.parts) {
    chunks = std::max(chunks, (part.count + elements - 1) / elements);
  }
  const int64_t produce = plan.reduce ? kSkew : 0;
  const int64_t copy_out = produce + (plan.gather ? kSkew : 0);
  const uint32_t base = group_.phase();
  for (int64_t k = 0; k < chunks + copy_out; ++k) {
    if (k >= kSkew) {
      const auto reached = base + static_cast<uint32_t>(k - kSkew + 1);
      MUSTER_RETURN_IF_ERROR(group_.WaitAll(reached, deadline));
    }
    if (plan.reduce && k < chunks) CopyIn(plan, k);
    if (k >= produce && k - produce < chunks) Produce(plan, k - produce);
    if (plan.gather && k >= copy_out) CopyOut(plan, k - copy_out);
    group_.Arrive();
  }
  return absl::OkStatus();
}

namespace {

class SharedMemoryEngine : public Engine {
 public:
  SharedMemoryEngine(std::unique_ptr<Links> links, std::shared_ptr<Segment> segment, bool spin)
      : links_(std::move(links)),
        group_(std::move(segment), links_->topology().hosts[0], links_.get(), spin) {}

  std::string Describe() const override {
    return fmt::format("shared memory, {} ranks", links_->size());
  }
  absl::Status Run(const Operation& operation, MonotonicTime deadline) override {
    const Plan plan = MakePlan(operation, links_->rank(), links_->size(), links_->size());
    absl::Status status = group_.Run(plan, operation.signature, deadline);
    if (absl::IsAborted(status)) status = group_.Reason();
    if (!status.ok()) group_.Poison(status);
    return status;
  }
  void Wake(const absl::Status& why) override { group_.Poison(why); }
  void Close(const absl::Status& why) override {
    group_.Poison(why);
    links_->Close(why);
  }
  std::shared_ptr<void> AllocateReducible(int64_t bytes) override {
    return group_.AllocateReducible(bytes);
  }

 private:
  const std::unique_ptr<Links> links_;
  HostGroup group_;
};

}  // namespace

std::unique_ptr<Engine> MakeSharedMemoryEngine(std::unique_ptr<Links> links,
                                               std::shared_ptr<Segment> segment, bool spin) {
  return std::make_unique<SharedMemoryEngine>(std::move(links), std::move(segment), spin);
}

}  // namespace muster::collective
