// Builds the Kubernetes objects that run TensorBoard on the volume of a run, as in
// k8s/components/tensorboard.
#pragma once

#include <string>
#include <vector>

#include "common/base/json/ordered_json.h"

namespace muster {

// Returns a Deployment of TensorBoard, and a NetworkPolicy that denies all network traffic of the
// TensorBoard pod. `claim` is the name of the volume's PersistentVolumeClaim.
std::vector<OrderedJson> TensorBoardObjects(const std::string& image, const std::string& claim);

}  // namespace muster
