// The objects of a job: what `kubectl apply` gets.
#pragma once

#include <string>
#include <vector>

#include "common/base/json/ordered_json.h"
#include "deploy/manifest/request.h"

namespace muster {

// In the order in which they are best made: what pods name comes before the pods.
std::vector<OrderedJson> ManifestObjects(const ManifestRequest& request);
// The objects as one text, with a comment at its top.
std::string ManifestText(const ManifestRequest& request);

}  // namespace muster
