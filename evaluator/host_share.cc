#include "evaluator/host_share.h"

#include <sys/resource.h>

#include <algorithm>

#include "common/rpc/host.h"
#include "common/rpc/server/listen.h"

namespace muster::evaluator {
namespace {

// A thread with this priority gets a tenth of a core beside a busy training thread. This is enough
// to complete a pass, and too little to delay a step. At the end of the job the whole core is free.
constexpr int kNice = 10;

bool IsOnThisHost(const Address& address) {
  // An address on which this process could listen is on this host. The port does not matter.
  const auto plan = rpc::PlanListen(rpc::JoinHostPort(address.host, 0), Duration::zero());
  return plan.ok() && plan->note.empty();
}

}  // namespace

bool SharesHost(const ClusterSpec& cluster) {
  const std::vector<TaskId> tasks = cluster.Tasks();
  return std::any_of(tasks.begin(), tasks.end(), [&](TaskId task) {
    return task.type != TaskType::kEvaluator && IsOnThisHost(cluster.AddressOf(task));
  });
}

std::string EvaluatorDevices(const std::string& devices, bool shares_host, const char* visible) {
  if (!shares_host) return devices;
  const bool sees_none = visible != nullptr && *visible == '\0';
  return devices == "auto" || sees_none ? "cpu" : devices;
}

// On Linux the priority belongs to the thread.
void LowerPriority() {
  setpriority(PRIO_PROCESS, 0, std::max(getpriority(PRIO_PROCESS, 0), kNice));
}

}  // namespace muster::evaluator
