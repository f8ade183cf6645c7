// The engine for several hosts with several processes each. First, the processes of each host
// reduce in shared memory. Each of the first m processes then has one part, where m is the smallest
// number of processes on any host. Next, m rings between the hosts reduce one part each. At last,
// the processes of each host gather the parts.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "common/collective/group/host_group.h"
#include "common/collective/group/ring.h"

namespace muster::collective {
namespace {

// Added to the deadline of what follows a ring, so that the error of the ring is reported first.
constexpr Duration kGrace = std::chrono::seconds(1);

class HierarchicalEngine : public Engine {
 public:
  HierarchicalEngine(std::unique_ptr<Links> links, std::shared_ptr<Segment> segment, bool spin)
      : links_(std::move(links)), ring_(links_.get(), spin) {
    for (size_t h = 0; h < hosts().size(); ++h) {
      const auto& ranks = hosts()[h];
      const auto me = std::find(ranks.begin(), ranks.end(), links_->rank());
      if (me == ranks.end()) continue;
      host_ = static_cast<int>(h);
      local_ = static_cast<int>(me - ranks.begin());
    }
    if (segment) group_.emplace(std::move(segment), hosts()[host_], links_.get(), spin);
  }

  std::string Describe() const override {
    return fmt::format("{} ranks on {} hosts: shared memory, {} TCP ring{} between hosts",
                       links_->size(), hosts().size(), carriers(), carriers() == 1 ? "" : "s");
  }

  absl::Status Run(const Operation& operation, MonotonicTime deadline) override {
    absl::Status status = RunVerb(operation, deadline);
    if (absl::IsAborted(status) && group_) {
      status = group_->Reason();
    } else if (absl::IsUnavailable(status)) {
      status = links_->Explain(status);
    }
    if (!status.ok() && group_) group_->Poison(status);
    return status;
  }
  void Wake(const absl::Status& why) override {
    links_->abort().Set();
    if (group_) group_->Poison(why);
  }
  void Close(const absl::Status& why) override {
    if (group_) group_->Poison(why);
    links_->Close(why);
  }
  std::shared_ptr<void> AllocateReducible(int64_t bytes) override {
    return group_ ? group_->AllocateReducible(bytes) : nullptr;
  }

 private:
  absl::Status RunVerb(const Operation& operation, MonotonicTime deadline) {
    const Signature& s = operation.signature;
    switch (s.verb) {
      case Verb::kAllReduce:
        return AllReduce(operation.receive, s, deadline);
      case Verb::kBroadcast:
        return Broadcast(operation.receive, s, deadline);
      case Verb::kBarrier:
        return Barrier(s, deadline);
      case Verb::kAllGather:
      case Verb::kReduceScatter:
        return RunAroundAll(ring_, *links_, operation, deadline);
    }
    return ProgramError("unknown verb");
  }

  const std::vector<std::vector<int>>& hosts() const { return links_->topology().hosts; }
  // Returns the rings between the hosts.
  const std::vector<std::vector<int>>& between() const { return links_->topology().between; }
  int carriers() const { return static_cast<int>(between().size()); }

  // Records that the ranks of this host have joined the operation, as shared memory has shown.
  void NoteHostPresent(const Signature& s) {
    for (const int rank : hosts()[host_]) links_->RecordPresence(rank, s.sequence);
  }

  absl::Status AllReduce(Buffer buffer, const Signature& s, MonotonicTime deadline) {
    Buffer mine = buffer;
    if (group_) {
      const Plan plan = MakeInPlacePlan(buffer, carriers(), group_->size(), ReductionOf(s.op, 1),
                                        /*reduce=*/true, /*gather=*/false);
      MUSTER_RETURN_IF_ERROR(group_->Run(plan, s, deadline));
      mine = {plan.parts[local_].receive, plan.parts[local_].count, buffer.type};
    }
    if (local_ < carriers()) {
      NoteHostPresent(s);
      const int n = static_cast<int>(hosts().size());
      const Plan plan = MakeInPlacePlan(mine, n, n, ReductionOf(s.op, links_->size()), true, true);
      MUSTER_RETURN_IF_ERROR(ring_.Run(between()[local_], plan, s, deadline));
    }
    if (!group_) return absl::OkStatus();
    const Plan gather = MakeInPlacePlan(buffer, carriers(), group_->size(), {}, false, true);
    return group_->Run(gather, s, deadline + kGrace);
  }

  // First, the root broadcasts to its host. The first rank of that host then broadcasts to the
  // first ranks of the other hosts, around the first ring. Each of these broadcasts to its host.
  absl::Status Broadcast(Buffer buffer, const Signature& s, MonotonicTime deadline) {
    int root_host = 0, root = 0;
    for (size_t h = 0; h < hosts().size(); ++h) {
      const auto at = std::find(hosts()[h].begin(), hosts()[h].end(), s.root);
      if (at == hosts()[h].end()) continue;
      root_host = static_cast<int>(h);
      root = static_cast<int>(at - hosts()[h].begin());
    }
    const bool has_root = host_ == root_host;
    if (has_root && group_ && root != 0) {
      const Plan plan = MakeBroadcastPlan(buffer, root, group_->size());
      MUSTER_RETURN_IF_ERROR(group_->Run(plan, s, deadline));
    }
    if (local_ == 0) {
      const Plan plan = MakeBroadcastPlan(buffer, root_host, static_cast<int>(hosts().size()));
      MUSTER_RETURN_IF_ERROR(ring_.Run(between()[0], plan, s, deadline));
    }
    if (!group_ || (has_root && root != 0)) return absl::OkStatus();
    return group_->Run(MakeBroadcastPlan(buffer, 0, group_->size()), s, deadline + kGrace);
  }

  absl::Status Barrier(const Signature& s, MonotonicTime deadline) {
    Plan nothing;
    if (group_) {
      nothing.parts.resize(group_->size());
      MUSTER_RETURN_IF_ERROR(group_->Run(nothing, s, deadline));
    }
    if (local_ == 0) {
      NoteHostPresent(s);
      MUSTER_RETURN_IF_ERROR(RingBarrier(ring_, between()[0], s, deadline));
    }
    return group_ ? group_->Run(nothing, s, deadline + kGrace) : absl::OkStatus();
  }

  const std::unique_ptr<Links> links_;
  Ring ring_;
  std::optional<HostGroup> group_;  // Empty if this rank is alone on its host.
  int host_ = 0, local_ = 0;
};

}  // namespace

std::unique_ptr<Engine> MakeHierarchicalEngine(std::unique_ptr<Links> links,
                                               std::shared_ptr<Segment> segment, bool spin) {
  return std::make_unique<HierarchicalEngine>(std::move(links), std::move(segment), spin);
}

}  // namespace muster::collective
