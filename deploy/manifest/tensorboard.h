// Builds the objects that run TensorBoard on the volume of a run, as in k8s/components/tensorboard.
#pragma once

#include <string>
#include <vector>

#include "common/base/json/ordered_json.h"

namespace muster {

// Returns the Deployment, and the NetworkPolicy that denies access to it. `claim` is the volume's
// PersistentVolumeClaim.
std::vector<OrderedJson> TensorBoardObjects(const std::string& image, const std::string& claim);

}  // namespace muster
