#include "common/membership/member_group.h"

#include <set>

namespace muster::membership {

GroupPlan PlanGroup(const Roster& roster, const MemberOptions& options,
                    const std::shared_ptr<FlightRecorder>& recorder) {
  GroupPlan plan;
  collective::GroupSpec& spec = plan.spec;
  Generation& generation = plan.generation;
  spec.generation = generation.id = roster.generation;
  spec.ticket = roster.ticket;
  spec.formation_timeout = options.timeouts.formation;
  spec.operation_timeout = options.timeouts.collective;
  spec.link_timeout = options.timeouts.heartbeat;
  spec.recorder = recorder;
  std::vector<std::vector<int>> cpus;
  int on_host = 0;
  for (const RosterMember& member : roster.members) {
    if (member.task == options.task) spec.rank = static_cast<int>(spec.members.size());
    spec.members.push_back({.task = member.task,
                            .host_id = member.host_id,
                            .data_address = member.data_address,
                            .num_replicas = member.num_replicas});
    generation.replicas_per_rank.push_back(member.num_replicas);
    plan.held_devices.push_back(member.held_devices);
    if (member.host_id != options.host.id) continue;
    on_host += member.num_replicas;
    cpus.push_back(member.cpus);
  }
  const CoreShare share = ShareCores(cpus, on_host);
  spec.spin = share.spin;
  spec.progress_thread = share.progress_thread;
  generation.rank = spec.rank;
  generation.replicas_on_host = on_host;
  generation.owner = roster.newest_rank;
  generation.owner_step = roster.newest_step;
  return plan;
}

CoreShare ShareCores(const std::vector<std::vector<int>>& cpus_of_processes, int replicas_on_host) {
  std::set<int> cores;
  for (const auto& cpus : cpus_of_processes) cores.insert(cpus.begin(), cpus.end());
  const int available = static_cast<int>(cores.size());
  return {.replicas_on_host = replicas_on_host,
          .spin = replicas_on_host <= available,
          .progress_thread = replicas_on_host < available};
}

}  // namespace muster::membership
