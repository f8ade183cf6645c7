// Converts a generation's roster to the arguments for the formation of its group.
#pragma once

#include <memory>
#include <vector>

#include "common/membership/member.h"

namespace muster::membership {

struct GroupPlan {
  collective::GroupSpec spec;
  // Complete except for run_id and replicas.
  Generation generation;
  std::vector<MemberDevices> held_devices;  // The devices that each member holds. Indexed by rank.
};
GroupPlan PlanGroup(const Roster& roster, const MemberOptions& options,
                    const std::shared_ptr<FlightRecorder>& recorder);

// How the replicas of this host use its cores, computed from the cores that each process may use.
// `spin` is true if each replica has a core and may busy-wait. `progress_thread` is true if at
// least one more core is left for a progress thread.
struct CoreShare {
  int replicas_on_host = 1;
  bool spin = false;
  bool progress_thread = false;
};
CoreShare ShareCores(const std::vector<std::vector<int>>& cpus_of_processes, int replicas_on_host);

}  // namespace muster::membership
