// Several hosts with several processes each: reduce among the processes of a host, so that the
// first m of them hold a part each (m: the fewest processes any host has), carry every part around
// a ring of its own between the hosts, and gather on each host.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "common/collective/host_team.h"
#include "common/collective/ring.h"

namespace muster::collective {
namespace {

constexpr Duration kGrace = std::chrono::seconds(1);  // the ring's own word comes first

class HierarchicalEngine : public Engine {
 public:
  HierarchicalEngine(std::unique_ptr<Mesh> mesh, std::shared_ptr<Segment> segment,
                     std::vector<std::vector<int>> hosts, bool spin)
      : mesh_(std::move(mesh)), hosts_(std::move(hosts)), ring_(mesh_.get(), spin) {
    carriers_ = mesh_->size();
    for (size_t h = 0; h < hosts_.size(); ++h) {
      const auto& ranks = hosts_[h];
      carriers_ = std::min(carriers_, static_cast<int>(ranks.size()));
      const auto me = std::find(ranks.begin(), ranks.end(), mesh_->rank());
      if (me == ranks.end()) continue;
      host_ = static_cast<int>(h);
      local_ = static_cast<int>(me - ranks.begin());
    }
    if (segment) team_.emplace(std::move(segment), hosts_[host_], mesh_.get(), spin);
    all_.resize(mesh_->size());
    std::iota(all_.begin(), all_.end(), 0);
  }

  std::string Describe() const override {
    return fmt::format("{} ranks on {} hosts: shared memory, {} TCP ring{} between hosts",
                       mesh_->size(), hosts_.size(), carriers_, carriers_ == 1 ? "" : "s");
  }

  absl::Status Run(const Operation& operation, MonotonicTime deadline) override {
    absl::Status status = RunVerb(operation, deadline);
    // First the reason, then the others of this host are woken: they will ask for it.
    if (absl::IsAborted(status)) {
      status = mesh_->Explain(PeerLost("Another rank of this host gave up."), true);
    } else if (absl::IsUnavailable(status)) {
      status = mesh_->Explain(status);
    }
    if (!status.ok() && team_) team_->Poison();
    return status;
  }
  void Wake(const absl::Status&) override {
    mesh_->abort().Set();
    if (team_) team_->Poison();
  }
  void Close(const absl::Status& why) override {
    if (team_) team_->Poison();
    mesh_->Close(why);
  }
  std::shared_ptr<void> AllocateReducible(int64_t bytes) override {
    return team_ ? team_->AllocateReducible(bytes) : nullptr;
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
        return ring_.Run(all_, MakePlan(operation, mesh_->rank(), mesh_->size(), mesh_->size()), s,
                         deadline);
    }
    return ProgramError("unknown verb");
  }

  // One rank of each host.
  std::vector<int> Across(int local) const {
    std::vector<int> order;
    for (const auto& host : hosts_) order.push_back(host[local]);
    return order;
  }

  absl::Status AllReduce(Buffer buffer, const Signature& s, MonotonicTime deadline) {
    Buffer mine = buffer;
    if (team_) {
      const Plan plan = MakeInPlacePlan(buffer, carriers_, team_->size(), ReductionOf(s.op, 1),
                                        /*reduce=*/true, /*gather=*/false);
      MUSTER_RETURN_IF_ERROR(team_->Run(plan, s, deadline));
      mine = {plan.parts[local_].receive, plan.parts[local_].count, buffer.type};
    }
    if (local_ < carriers_) {
      const int n = static_cast<int>(hosts_.size());
      const Plan plan = MakeInPlacePlan(mine, n, n, ReductionOf(s.op, mesh_->size()), true, true);
      MUSTER_RETURN_IF_ERROR(ring_.Run(Across(local_), plan, s, deadline));
    }
    if (!team_) return absl::OkStatus();
    const Plan gather = MakeInPlacePlan(buffer, carriers_, team_->size(), {}, false, true);
    return team_->Run(gather, s, deadline + kGrace);
  }

  absl::Status Broadcast(Buffer buffer, const Signature& s, MonotonicTime deadline) {
    std::vector<int> order = Across(0);
    int root_host = 0;
    for (size_t h = 0; h < hosts_.size(); ++h) {
      if (std::find(hosts_[h].begin(), hosts_[h].end(), s.root) == hosts_[h].end()) continue;
      root_host = static_cast<int>(h);
      order[h] = s.root;
    }
    const int carrier = order[host_];
    if (carrier == mesh_->rank()) {
      const Plan plan = MakeBroadcastPlan(buffer, root_host, static_cast<int>(hosts_.size()));
      MUSTER_RETURN_IF_ERROR(ring_.Run(order, plan, s, deadline));
    }
    if (!team_) return absl::OkStatus();
    const auto& local = hosts_[host_];
    const int from =
        static_cast<int>(std::find(local.begin(), local.end(), carrier) - local.begin());
    return team_->Run(MakeBroadcastPlan(buffer, from, team_->size()), s, deadline + kGrace);
  }

  absl::Status Barrier(const Signature& s, MonotonicTime deadline) {
    Plan nothing;
    if (team_) {
      nothing.parts.resize(team_->size());
      MUSTER_RETURN_IF_ERROR(team_->Run(nothing, s, deadline));
    }
    if (local_ == 0) MUSTER_RETURN_IF_ERROR(RingBarrier(ring_, Across(0), s, deadline));
    return team_ ? team_->Run(nothing, s, deadline + kGrace) : absl::OkStatus();
  }

  const std::unique_ptr<Mesh> mesh_;
  const std::vector<std::vector<int>> hosts_;
  Ring ring_;
  std::optional<HostTeam> team_;  // empty: alone on the host
  std::vector<int> all_;
  int host_ = 0, local_ = 0, carriers_ = 0;
};

}  // namespace

std::unique_ptr<Engine> MakeHierarchicalEngine(std::unique_ptr<Mesh> mesh,
                                               std::shared_ptr<Segment> segment,
                                               std::vector<std::vector<int>> hosts, bool spin) {
  return std::make_unique<HierarchicalEngine>(std::move(mesh), std::move(segment), std::move(hosts),
                                              spin);
}

}  // namespace muster::collective
