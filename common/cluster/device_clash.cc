#include "common/cluster/device_clash.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "common/cluster/verdict.h"

namespace muster {
namespace {

std::string DriverOf(const MemberDevices& member) {
  return member.driver.empty() ? "no NVIDIA driver" : "driver " + member.driver;
}

}  // namespace

absl::Status CheckDeviceClash(const std::vector<MemberDevices>& members) {
  const MemberDevices *cuda = nullptr, *other = nullptr;
  std::map<std::pair<std::string, std::string>, const MemberDevices*> holders;
  for (const MemberDevices& member : members) {
    if (member.kind == "cuda" && cuda == nullptr) cuda = &member;
    if (!member.kind.empty() && member.kind != "cuda" && other == nullptr) other = &member;
    for (const std::string& uuid : member.uuids) {
      const auto [found, added] = holders.emplace(std::pair(uuid, member.nccl_host_id), &member);
      if (added) continue;
      return ConfigurationError(fmt::format(
          "{} and {} both hold GPU {}: give each task GPUs of its own by CUDA_VISIBLE_DEVICES, as "
          "muster launch does",
          TaskText(found->second->task), TaskText(member.task), uuid));
    }
  }
  if (cuda == nullptr || other == nullptr) return absl::OkStatus();
  return ConfigurationError(
      fmt::format("{} trains on CUDA devices ({}), but {} on the CPU ({}): give both GPUs, or set "
                  "devices to cpu for both",
                  TaskText(cuda->task), DriverOf(*cuda), TaskText(other->task), DriverOf(*other)));
}

}  // namespace muster
