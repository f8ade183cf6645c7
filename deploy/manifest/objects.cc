#include "deploy/manifest/objects.h"

#include <fmt/format.h>

#include "common/base/hash.h"
#include "deploy/manifest/pods.h"
#include "deploy/manifest/tensorboard.h"
#include "deploy/manifest/yaml.h"

namespace muster {
namespace {

OrderedJson Object(const char* api_version, const char* kind, const std::string& name) {
  return {{"apiVersion", api_version},
          {"kind", kind},
          {"metadata", {{"name", name}, {"labels", {{"app.kubernetes.io/name", kManifestName}}}}}};
}

bool MakesTfConfig(const ManifestRequest& request) {
  return request.manifest_operator == ManifestOperator::kTfJob;
}

// The name contains a digest of the content, so a running job never sees a partial change.
OrderedJson ConfigMap(const ManifestRequest& request) {
  OrderedJson data = {{"job.json", request.job}};
  if (!MakesTfConfig(request)) data["cluster.json"] = Dump(PodCluster(request).ToJson()) + "\n";
  OrderedJson object = Object(
      "v1", "ConfigMap", fmt::format("{}-job-{:010x}", kManifestName, Fnv1a(Dump(data)) >> 24));
  object["data"] = data;
  return object;
}

OrderedJson Secret(const std::string& run_key) {
  OrderedJson object = Object("v1", "Secret", kRunKeySecret);
  object["stringData"] = {{"run.key", run_key}};
  return object;
}

OrderedJson NetworkPolicy() {
  const OrderedJson pods = {{"matchLabels", {{"app.kubernetes.io/name", kManifestName}}}};
  OrderedJson object = Object("networking.k8s.io/v1", "NetworkPolicy", kManifestName);
  object["spec"] = {
      {"podSelector", pods},
      {"policyTypes", OrderedJson::array({"Ingress"})},
      {"ingress", OrderedJson::array({{{"from", OrderedJson::array({{{"podSelector", pods}}})}}})}};
  return object;
}

OrderedJson DisruptionBudget(const ManifestRequest& request) {
  const auto in = [](const char* key, OrderedJson values) {
    return OrderedJson{{"key", key}, {"operator", "In"}, {"values", std::move(values)}};
  };
  OrderedJson object = Object("policy/v1", "PodDisruptionBudget", kManifestName);
  object["spec"] = {
      {"minAvailable", request.members() - 1},
      {"selector",
       {{"matchExpressions",
         OrderedJson::array({in("app.kubernetes.io/name", OrderedJson::array({kManifestName})),
                             in("app.kubernetes.io/component",
                                OrderedJson::array({"chief", "worker", "ps"}))})}}}};
  return object;
}

OrderedJson ModelDir(const ManifestRequest& request) {
  OrderedJson object = Object("v1", "PersistentVolumeClaim", ModelDirClaim());
  const char* mode = request.shares_volume() ? "ReadWriteMany" : "ReadWriteOnce";
  object["spec"] = {{"accessModes", OrderedJson::array({mode})},
                    {"resources", {{"requests", {{"storage", request.storage}}}}}};
  if (!request.storage_class.empty()) object["spec"]["storageClassName"] = request.storage_class;
  return object;
}

OrderedJson Service() {
  OrderedJson object = Object("v1", "Service", kManifestName);
  object["spec"] = {{"clusterIP", "None"},
                    {"publishNotReadyAddresses", true},
                    {"selector", {{"app.kubernetes.io/name", kManifestName}}}};
  return object;
}

OrderedJson Job(const ManifestRequest& request, const PodRole& role,
                const std::string& config_map) {
  OrderedJson object = Object("batch/v1", "Job", fmt::format("{}-{}", kManifestName, role.Name()));
  object["metadata"]["labels"] = RoleLabels(role);
  object["spec"] = JobSpec(request, role, config_map);
  return object;
}

const char* TfReplicaType(TaskType type) {
  switch (type) {
    case TaskType::kChief:
      return "Chief";
    case TaskType::kWorker:
      return "Worker";
    case TaskType::kPs:
      return "PS";
    case TaskType::kEvaluator:
      break;
  }
  return "Evaluator";
}

OrderedJson TfJob(const ManifestRequest& request, const std::string& config_map) {
  OrderedJson object = Object("kubeflow.org/v1", "TFJob", kManifestName);
  OrderedJson& spec = object["spec"];
  spec["runPolicy"] = {{"cleanPodPolicy", "Running"}};
  for (const PodRole& role : RolesOf(request))
    spec["tfReplicaSpecs"][TfReplicaType(role.type)] = {
        {"replicas", role.count},
        {"restartPolicy", "ExitCode"},
        {"template", PodTemplate(request, role, config_map)}};
  return object;
}

OrderedJson JobSet(const ManifestRequest& request, const std::string& config_map) {
  OrderedJson object = Object("jobset.x-k8s.io/v1alpha2", "JobSet", kManifestName);
  OrderedJson& spec = object["spec"];
  spec["network"] = {{"subdomain", kManifestName},
                     {"enableDNSHostnames", true},
                     {"publishNotReadyAddresses", true}};
  spec["successPolicy"] = {{"operator", "All"},
                           {"targetReplicatedJobs", OrderedJson::array({"chief"})}};
  OrderedJson members = OrderedJson::array();
  for (const PodRole& role : RolesOf(request))
    if (role.type != TaskType::kEvaluator) members.push_back(role.Name());
  spec["failurePolicy"] = {
      {"maxRestarts", 3},
      {"restartStrategy", "BlockingRecreate"},
      {"rules",
       OrderedJson::array({{{"name", "permanentExitCode"},
                            {"action", "FailJobSet"},
                            {"onJobFailureReasons", OrderedJson::array({"PodFailurePolicy"})},
                            {"targetReplicatedJobs", members}}})}};
  for (const PodRole& role : RolesOf(request))
    spec["replicatedJobs"].push_back(
        {{"name", role.Name()},
         {"replicas", 1},
         {"template", {{"spec", JobSpec(request, role, config_map)}}}});
  return object;
}

void AddPods(const ManifestRequest& request, const std::string& config_map,
             std::vector<OrderedJson>* objects) {
  switch (request.manifest_operator) {
    case ManifestOperator::kNone:
      objects->push_back(Service());
      for (const PodRole& role : RolesOf(request))
        objects->push_back(Job(request, role, config_map));
      return;
    case ManifestOperator::kTfJob:
      objects->push_back(TfJob(request, config_map));
      break;
    case ManifestOperator::kJobSet:
      objects->push_back(JobSet(request, config_map));
      break;
  }
  if (!request.queue.empty())
    objects->back()["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = request.queue;
}

std::string Counted(int count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

std::vector<OrderedJson> ManifestObjects(const ManifestRequest& request) {
  std::vector<OrderedJson> objects;
  if (!request.run_key.empty()) objects.push_back(Secret(request.run_key));
  objects.push_back(ConfigMap(request));
  const std::string config_map = objects.back()["metadata"]["name"];
  objects.push_back(NetworkPolicy());
  objects.push_back(DisruptionBudget(request));
  objects.push_back(ModelDir(request));
  AddPods(request, config_map, &objects);
  if (!request.tensorboard.empty())
    for (OrderedJson& object : TensorBoardObjects(request.tensorboard, ModelDirClaim()))
      objects.push_back(std::move(object));
  return objects;
}

std::string ManifestText(const ManifestRequest& request) {
  std::string text =
      fmt::format("# Made by muster manifest: a chief, {}", Counted(request.workers, "worker"));
  if (request.ps > 0) text += ", " + Counted(request.ps, "parameter server");
  text += request.evaluator ? ", an evaluator.\n" : ".\n";
  if (request.run_key.empty())
    text += fmt::format(
        "# The pods mount a Secret that is not here: kubectl create secret generic {} "
        "--from-file=run.key\n",
        kRunKeySecret);
  for (const OrderedJson& object : ManifestObjects(request)) text += "---\n" + ToYaml(object);
  return text;
}

}  // namespace muster
