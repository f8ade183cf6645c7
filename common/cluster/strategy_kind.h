// The training strategies and their names in the job file. The strategy determines which types of
// tasks a cluster may have (CheckStrategy in cluster_config.h).
#pragma once

#include <string_view>

namespace muster {

enum class StrategyKind {
  kMultiWorkerMirrored,
  kMirrored,
  kParameterServer,
  kCentralStorage,
  kOneDevice
};
inline constexpr int kNumStrategyKinds = 5;
inline constexpr std::string_view kStrategyNames[kNumStrategyKinds] = {
    "multi_worker_mirrored", "mirrored", "parameter_server", "central_storage", "one_device"};

inline std::string_view StrategyName(StrategyKind kind) {
  return kStrategyNames[static_cast<int>(kind)];
}

}  // namespace muster
