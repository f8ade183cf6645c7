#include "deploy/manifest/request.h"

#include <fmt/format.h>

namespace muster {

std::string ModelDirClaim() { return fmt::format("{}-model-dir", kManifestName); }

std::vector<PodRole> RolesOf(const ManifestRequest& request) {
  std::vector<PodRole> roles = {{TaskType::kChief, 1, request.chief_computes}};
  if (request.workers > 0) roles.push_back({TaskType::kWorker, request.workers, true});
  if (request.evaluator) roles.push_back({TaskType::kEvaluator, 1, false});
  if (request.ps > 0) roles.push_back({TaskType::kPs, request.ps, false});
  return roles;
}

ClusterSpec PodCluster(const ManifestRequest& request) {
  // A JobSet numbers the Jobs of a role, and a role has one.
  const char* job = request.manifest_operator == ManifestOperator::kJobSet ? "-0" : "";
  const auto host = [job](std::string_view type, int index) {
    return Address{fmt::format("{0}-{1}{2}-{3}.{0}", kManifestName, type, job, index), kPodPort};
  };
  ClusterSpec cluster;
  cluster.chief = host("chief", 0);
  for (int i = 0; i < request.workers; ++i) cluster.worker.push_back(host("worker", i));
  for (int i = 0; i < request.ps; ++i) cluster.ps.push_back(host("ps", i));
  return cluster;
}

}  // namespace muster
