// The training strategies and their names in the job file. The strategy determines which types of
// tasks a cluster may have (CheckStrategy in cluster_config.h).
#pragma once

#include <optional>
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
inline std::optional<StrategyKind> StrategyFromName(std::string_view name) {
  for (int i = 0; i < kNumStrategyKinds; ++i) {
    if (kStrategyNames[i] == name) return static_cast<StrategyKind>(i);
  }
  return std::nullopt;
}

}  // namespace muster
