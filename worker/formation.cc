#include "worker/formation.h"

#include <algorithm>
#include <map>
#include <string>

#include "common/collective/nccl/nccl.h"

namespace muster::worker {
namespace {

using collective::Backend;

// The names that the job file allows. job_checks refuses others.
Backend BackendOf(const std::string& name) {
  static const std::map<std::string, Backend> kBackends = {
      {"auto", Backend::kAuto},
      {"nccl", Backend::kNccl},
      {"tcp", Backend::kTcp},
      {"shared_memory", Backend::kSharedMemory},
      {"hierarchical", Backend::kHierarchical}};
  return kBackends.at(name);
}

}  // namespace

GroupFactory FormationOver(const FormationOptions& options) {
  collective::NcclOptions nccl{.timeout = options.timeout,
                               .traffic = {options.traffic, &options.traffic->nccl}};
  for (const c10::Device& device : options.devices) {
    if (device.is_cuda()) nccl.devices.push_back(device.index());
  }
  return [=](const collective::GroupSpec& wanted, const std::vector<int>& replicas_per_rank,
             const std::function<bool()>& aborted)
             -> absl::StatusOr<std::vector<std::unique_ptr<collective::Communicator>>> {
    const MonotonicTime deadline = Clock::now() + wanted.formation_timeout;
    collective::GroupSpec spec = wanted;
    spec.backend = BackendOf(options.collective.backend);
    spec.shared_memory = {options.traffic, &options.traffic->shared_memory};
    MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<collective::Communicator> group,
                            collective::FormGroup(spec, *options.listener, aborted));
    if (!nccl.devices.empty()) {
      collective::NcclOptions options_now = nccl;
      options_now.formation_timeout =
          std::max<Duration>(deadline - Clock::now(), std::chrono::seconds(1));
      auto made = collective::MakeNcclCommunicators(std::move(group), replicas_per_rank,
                                                    options_now, aborted);
      if (!made.ok()) return options.judge(made.status());
      return made;
    }
    return collective::MakeReplicaCommunicators(std::move(group), replicas_per_rank,
                                                options.timeout);
  };
}

}  // namespace muster::worker
