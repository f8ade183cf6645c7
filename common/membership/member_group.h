// Converts the roster of a generation to the arguments of MemberOptions::form, which makes the
// communicators. A generation is a period of training with fixed members. The roster lists the
// members of the generation.
#pragma once

#include <memory>
#include <vector>

#include "common/membership/member.h"

namespace muster::membership {

struct GroupPlan {
  collective::GroupSpec spec;
  // PlanGroup sets all fields except run_id and replicas.
  Generation generation;
  std::vector<MemberDevices> held_devices;  // The devices of each member. Indexed by rank.
};
// The communicators record their operations in `recorder`.
GroupPlan PlanGroup(const Roster& roster, const MemberOptions& options,
                    const std::shared_ptr<FlightRecorder>& recorder);

// How the replicas of the model on this host use the host's cores.
struct CoreShare {
  int replicas_on_host = 1;
  // True if there is a core for each replica. Replicas may busy-wait in this case.
  bool spin = false;
  // True if there are more cores than replicas. Collective operations run on a thread of their own
  // in this case.
  bool progress_thread = false;
};
// `cpus_of_processes` has the numbers of the cores that each process on this host may use.
CoreShare ShareCores(const std::vector<std::vector<int>>& cpus_of_processes, int replicas_on_host);

}  // namespace muster::membership
