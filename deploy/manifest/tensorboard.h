// TensorBoard on the volume of a run, as k8s/components/tensorboard has it.
#pragma once

#include <string>
#include <vector>

#include "common/base/json/ordered_json.h"

namespace muster {

// The Deployment, and the policy that keeps the network from it. `claim` is the volume's.
std::vector<OrderedJson> TensorBoardObjects(const std::string& image, const std::string& claim);

}  // namespace muster
