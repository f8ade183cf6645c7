#include "deploy/cluster_file.h"

#include "muster/json.h"

namespace muster {

absl::StatusOr<ClusterSpec> ReadClusterFile(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(Json json, ReadJsonFile(path));
  if (json.is_object() && json.contains("cluster")) json = json["cluster"];
  absl::StatusOr<ClusterSpec> spec = SpecFromJson(json);
  if (!spec.ok()) return Annotate(spec.status(), path + ": ");
  if (spec->empty()) return ConfigurationError(path + " names no task");
  return spec;
}

}  // namespace muster
