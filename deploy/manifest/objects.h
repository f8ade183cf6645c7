// Builds the Kubernetes objects of a job, as input for `kubectl apply`. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "common/base/json/ordered_json.h"
#include "deploy/manifest/request.h"

namespace muster {

// Returns the objects in the order in which they must be created. Objects to which pods refer come
// before the pods.
std::vector<OrderedJson> ManifestObjects(const ManifestRequest& request);
// Returns the objects as one YAML text that begins with a comment.
std::string ManifestText(const ManifestRequest& request);

}  // namespace muster
