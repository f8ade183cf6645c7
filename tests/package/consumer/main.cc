// Uses an installed Muster: its headers, its library, and what they depend on.
#include <iostream>

#include "common/cluster/cluster_config.h"
#include "muster/status.h"
#include "proto/coordinator.pb.h"

int main() {
  const auto config = muster::ParseTfConfig(
      R"({"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}})");
  if (!config.ok() || config->rank() != 1 || config->world_size() != 2) {
    std::cerr << "unexpected: " << muster::Message(config.status()) << '\n';
    return 1;
  }
  const auto refused = muster::ParseTfConfig("{");
  if (muster::ExitCodeOf(refused.status()) != muster::ExitCode::kConfiguration) return 1;
  std::cout << config->Who() << " of " << *config->world_size() << '\n';
  return 0;
}
