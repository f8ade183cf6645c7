#include "common/process/data_port.h"

#include "common/base/logging.h"
#include "common/rpc/host.h"
#include "common/security/identity.h"
#include "common/transport/address.h"

namespace muster {

std::string DataRoute(const ClusterConfig& config) {
  const std::string chief = config.cluster.AddressOf(*config.chief()).ToString();
  if (config.role() != TaskType::kChief) return chief;
  // On the chief's host, the chief's name may resolve to the loopback (Debian writes 127.0.1.1 to
  // /etc/hosts), which members on other hosts cannot reach. In this case, returns the address of a
  // member on another host.
  const auto own = rpc::LocalAddressTowards(chief);
  if (own.ok() && !IsLoopback(Address{*own, 1})) return chief;
  for (const TaskId& task : config.cluster.Tasks()) {
    const Address& address = config.cluster.AddressOf(task);
    if (task != *config.task && task.type != TaskType::kEvaluator && !IsLoopback(address))
      return address.ToString();
  }
  return chief;
}

absl::StatusOr<transport::ListenerOptions> DataPortOptions(const Job& job,
                                                           const ClusterConfig& config,
                                                           const std::function<bool()>& give_up) {
  transport::ListenerOptions options;
  options.security = config.identity;
  if (!job.collective.interface.empty()) {
    MUSTER_ASSIGN_OR_RETURN(options.bind_address,
                            transport::InterfaceAddress(job.collective.interface));
    LogInfo("data connections use {}, the address of interface {}", options.bind_address,
            job.collective.interface);
    return options;
  }
  const std::string route = DataRoute(config);
  MUSTER_ASSIGN_OR_RETURN(options.bind_address,
                          rpc::WaitForLocalAddressTowards(route, job.timeouts.join, give_up));
  const std::string chief = config.cluster.AddressOf(*config.chief()).ToString();
  LogInfo("data connections use {}, the address of the route to {}", options.bind_address,
          route == chief ? "the chief" : route);
  return options;
}

}  // namespace muster
