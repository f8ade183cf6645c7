#include "deploy/manifest/pods.h"

#include <absl/strings/str_replace.h>
#include <fmt/format.h>

#include <utility>

namespace muster {
namespace {

constexpr int kGraceSeconds = 300;
constexpr int kRestarts = 6;
constexpr char kPreflightTimeout[] = "600";  // In seconds. Nodes may pull the image first.
// Enough for years. The Job of a JobSet's evaluator must not fail, because a JobSet restarts all
// Jobs after a failure that no rule covers.
constexpr int kUncounted = 100'000;

OrderedJson OnExitCodes(const char* action, OrderedJson codes) {
  return {{"action", action},
          {"onExitCodes",
           {{"containerName", kManifestName}, {"operator", "In"}, {"values", std::move(codes)}}}};
}

OrderedJson PodFailurePolicy(bool may_fail) {
  OrderedJson rules = OrderedJson::array(
      {{{"action", "Ignore"},
        {"onPodConditions",
         OrderedJson::array({{{"type", "DisruptionTarget"}, {"status", "True"}}})}},
       OnExitCodes("Ignore", OrderedJson::array({143}))});
  if (may_fail)
    rules.push_back(OnExitCodes("FailJob", OrderedJson::array({1, 2, 3, 126, 127, 128})));
  return {{"rules", rules}};
}

OrderedJson Named(const std::string& name, OrderedJson rest) {
  OrderedJson object = {{"name", name}};
  object.update(rest);
  return object;
}

OrderedJson Variable(const std::string& name, const std::string& value) {
  return {{"name", name}, {"value", value}};
}

// The kubelet expands TF_CONFIG from the variables before it, which have the cluster and the pod's
// index.
OrderedJson TfConfigVariables(const PodRole& role, const std::string& config_map) {
  const char* index = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
  return OrderedJson::array(
      {Named("JOB_COMPLETION_INDEX", {{"valueFrom", {{"fieldRef", {{"fieldPath", index}}}}}}),
       Named("CLUSTER", {{"valueFrom",
                          {{"configMapKeyRef", {{"name", config_map}, {"key", "cluster.json"}}}}}}),
       Variable("TF_CONFIG", fmt::format("{{\"cluster\": $(CLUSTER), \"task\": {{\"type\": "
                                         "\"{}\", \"index\": $(JOB_COMPLETION_INDEX)}}}}",
                                         role.Name()))});
}

void AddCommonVariables(const ManifestRequest& request, const PodRole& role, OrderedJson* env) {
  env->push_back(Variable("MUSTER_RUN_KEY_FILE", kRunKeyFile));
  if (!role.computes || request.gpus == 0) return;
  env->push_back(Variable("NCCL_DEBUG", "WARN"));
  env->push_back(Variable("NCCL_DEBUG_FILE", "/dev/stderr"));
}

// The kubelet expands $(NAME) in arguments, and replaces $$ by $.
std::string Unexpanded(const std::string& text) { return absl::StrReplaceAll(text, {{"$", "$$"}}); }

OrderedJson Arguments(const ManifestRequest& request, const PodRole& role) {
  OrderedJson args = OrderedJson::array({"--job", "/etc/muster/job.json"});
  const auto set = [&args](const std::string& value) {
    args.push_back("--set");
    args.push_back(value);
  };
  for (const std::string& override : request.overrides) set(Unexpanded(override));
  // A container without a GPU request may see all GPUs of its node.
  const bool on_cpu =
      role.type == TaskType::kEvaluator || (role.type == TaskType::kChief && !role.computes);
  if (on_cpu) set("devices=cpu");
  if (request.preflight)
    for (const char* argument : {"--timeout", kPreflightTimeout}) args.push_back(argument);
  return args;
}

OrderedJson Resources(const ManifestRequest& request, const PodRole& role) {
  const int gpus = role.computes ? request.gpus : 0;
  if (gpus == 0)
    return {{"requests", {{"cpu", "1"}, {"memory", "1Gi"}}}, {"limits", {{"memory", "2Gi"}}}};
  return {
      {"requests", {{"cpu", std::to_string(4 * gpus)}, {"memory", fmt::format("{}Gi", 8 * gpus)}}},
      {"limits",
       {{"memory", fmt::format("{}Gi", 16 * gpus)}, {"nvidia.com/gpu", std::to_string(gpus)}}}};
}

// A mounted volume.
struct Mount {
  std::string name, path;
  bool read_only;
  OrderedJson source;
};

std::vector<Mount> MountsOf(const ManifestRequest& request, const PodRole& role,
                            const std::string& config_map) {
  std::vector<Mount> mounts = {
      {"job", "/etc/muster", true, {{"configMap", {{"name", config_map}}}}},
      {"run-key",
       "/etc/muster-key",
       true,
       {{"secret", {{"secretName", kRunKeySecret}, {"defaultMode", 0440}}}}}};
  if (role.type == TaskType::kPs) return mounts;
  // docs/kubernetes.md explains the size.
  const int shm = 512 + (role.computes ? 1024 * request.gpus : 0);
  mounts.push_back(
      {"shm",
       "/dev/shm",
       false,
       {{"emptyDir", {{"medium", "Memory"}, {"sizeLimit", fmt::format("{}Mi", shm)}}}}});
  mounts.push_back({"tmp", "/tmp", false, {{"emptyDir", {{"sizeLimit", "2Gi"}}}}});
  if (role.type == TaskType::kChief)
    mounts.push_back({"model-dir",
                      kModelDirMount,
                      false,
                      {{"persistentVolumeClaim", {{"claimName", ModelDirClaim()}}}}});
  return mounts;
}

OrderedJson ReadinessProbe() {
  return {{"grpc", {{"port", kPodPort}}}, {"periodSeconds", 5}, {"timeoutSeconds", 5}};
}

OrderedJson Command(const ManifestRequest& request, const PodRole& role) {
  if (request.preflight) return OrderedJson::array({"muster", "preflight"});
  return OrderedJson::array({"muster-" + role.Name()});
}

OrderedJson Container(const ManifestRequest& request, const PodRole& role,
                      const std::vector<Mount>& mounts, const std::string& config_map) {
  const bool tfjob = request.manifest_operator == ManifestOperator::kTfJob;
  OrderedJson env = tfjob ? OrderedJson::array() : TfConfigVariables(role, config_map);
  AddCommonVariables(request, role, &env);
  OrderedJson container = {{"name", tfjob ? "tensorflow" : kManifestName},
                           {"image", request.image},
                           {"command", Command(request, role)},
                           {"args", Arguments(request, role)},
                           {"env", env}};
  if (role.listens() || tfjob)
    container["ports"] = OrderedJson::array(
        {{{"name", tfjob ? "tfjob-port" : "control"}, {"containerPort", kPodPort}}});
  if (role.listens() && !request.preflight) container["readinessProbe"] = ReadinessProbe();
  container["resources"] = Resources(request, role);
  container["securityContext"] = ContainerSecurity();
  container["terminationMessagePolicy"] = "FallbackToLogsOnError";
  for (const Mount& mount : mounts) {
    OrderedJson entry = {{"name", mount.name}, {"mountPath", mount.path}};
    if (mount.read_only) entry["readOnly"] = true;
    container["volumeMounts"].push_back(entry);
  }
  return container;
}

OrderedJson SpreadConstraint(const OrderedJson& labels) {
  return OrderedJson::array({{{"maxSkew", 1},
                              {"topologyKey", "kubernetes.io/hostname"},
                              {"whenUnsatisfiable", "ScheduleAnyway"},
                              {"labelSelector", {{"matchLabels", labels}}}}});
}

void AddPlacement(const ManifestRequest& request, const PodRole& role, OrderedJson* spec) {
  OrderedJson labels = {{"app.kubernetes.io/name", kManifestName}};
  if (role.type == TaskType::kPs) {
    labels["app.kubernetes.io/component"] = "ps";
    (*spec)["topologySpreadConstraints"] = SpreadConstraint(labels);
  }
  if (!role.computes || request.gpus == 0) return;
  labels["computes-steps"] = "true";
  (*spec)["tolerations"] = OrderedJson::array(
      {{{"key", "nvidia.com/gpu"}, {"operator", "Exists"}, {"effect", "NoSchedule"}}});
  (*spec)["topologySpreadConstraints"] = SpreadConstraint(labels);
}

}  // namespace

OrderedJson PodSecurity(bool mounts_model_dir) {
  OrderedJson security = {{"runAsNonRoot", true},
                          {"runAsUser", kPodUser},
                          {"runAsGroup", kPodUser},
                          {"fsGroup", kPodUser}};
  if (mounts_model_dir) security["fsGroupChangePolicy"] = "OnRootMismatch";
  security["seccompProfile"] = {{"type", "RuntimeDefault"}};
  return security;
}

OrderedJson ContainerSecurity() {
  return {{"allowPrivilegeEscalation", false},
          {"readOnlyRootFilesystem", true},
          {"capabilities", {{"drop", OrderedJson::array({"ALL"})}}}};
}

OrderedJson RoleLabels(const PodRole& role) {
  OrderedJson labels = {{"app.kubernetes.io/name", kManifestName},
                        {"app.kubernetes.io/component", role.Name()}};
  if (role.computes) labels["computes-steps"] = "true";
  return labels;
}

OrderedJson JobSpec(const ManifestRequest& request, const PodRole& role,
                    const std::string& config_map) {
  OrderedJson spec = {
      {"completions", role.count}, {"parallelism", role.count}, {"completionMode", "Indexed"}};
  if (request.preflight) {
    // Each pod runs once, whatever the result.
    spec["backoffLimitPerIndex"] = 0;
    spec["template"] = PodTemplate(request, role, config_map);
    return spec;
  }
  const bool may_fail =
      role.type != TaskType::kEvaluator || request.manifest_operator != ManifestOperator::kJobSet;
  if (role.type == TaskType::kWorker || role.type == TaskType::kPs) {
    spec["backoffLimitPerIndex"] = kRestarts;
    spec["maxFailedIndexes"] = 0;
  } else {
    spec["backoffLimit"] = may_fail ? kRestarts : kUncounted;
  }
  spec["podFailurePolicy"] = PodFailurePolicy(may_fail);
  spec["template"] = PodTemplate(request, role, config_map);
  return spec;
}

OrderedJson PodTemplate(const ManifestRequest& request, const PodRole& role,
                        const std::string& config_map) {
  OrderedJson spec = OrderedJson::object();
  if (request.manifest_operator != ManifestOperator::kTfJob) {
    spec["subdomain"] = kManifestName;
    spec["restartPolicy"] = "Never";
  }
  spec["terminationGracePeriodSeconds"] = kGraceSeconds;
  spec["enableServiceLinks"] = false;
  spec["automountServiceAccountToken"] = false;
  spec["securityContext"] = PodSecurity(/*mounts_model_dir=*/role.type == TaskType::kChief);
  AddPlacement(request, role, &spec);
  const std::vector<Mount> mounts = MountsOf(request, role, config_map);
  spec["containers"] = OrderedJson::array({Container(request, role, mounts, config_map)});
  for (const Mount& mount : mounts) spec["volumes"].push_back(Named(mount.name, mount.source));
  return {{"metadata", {{"labels", RoleLabels(role)}}}, {"spec", spec}};
}

}  // namespace muster
