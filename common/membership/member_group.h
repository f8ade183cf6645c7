// Converts the roster of a generation to the inputs of its formation.
#pragma once

#include <memory>
#include <vector>

#include "common/membership/member.h"

namespace muster {

struct GroupPlan {
  GroupSpec spec;
  // The generation without run_id and replicas.
  Generation generation;
  std::vector<MemberDevices> held;  // Indexed by rank.
};
GroupPlan PlanGroup(const membership::Roster& roster, const MemberOptions& options,
                    const std::shared_ptr<FlightRecorder>& recorder);

// The division of this host's cores among its replicas. They may spin while they wait, and there
// may be a core for a progress thread. Computed from the cores that the host's processes may use
// together.
struct CoreShare {
  int replicas_on_host = 1;
  bool spin = false;
  bool progress_thread = false;
};
CoreShare ShareCores(const std::vector<std::vector<int>>& cpus_of_processes, int replicas_on_host);

}  // namespace muster
