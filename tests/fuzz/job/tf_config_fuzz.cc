// TF_CONFIG, by itself and in an environment: lines of NAME=VALUE.
#include <map>

#include "common/cluster/cluster_config.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const std::string text(fuzz::Text(data, size));
  (void)ParseTfConfig(text);
  std::map<std::string, std::string> variables;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const size_t equals = line.find('=');
    if (equals != std::string::npos) variables[line.substr(0, equals)] = line.substr(equals + 1);
    at = end + 1;
  }
  (void)ClusterFromEnvironment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
  return 0;
}
