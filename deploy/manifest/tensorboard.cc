#include "deploy/manifest/tensorboard.h"

#include "deploy/manifest/pods.h"
#include "deploy/manifest/request.h"

namespace muster {
namespace {

constexpr char kName[] = "muster-tensorboard";
constexpr int kPort = 6006;

OrderedJson Labels() {
  return {{"app.kubernetes.io/name", "tensorboard"}, {"app.kubernetes.io/part-of", kManifestName}};
}

OrderedJson Probe(int period_seconds, int timeout_seconds) {
  return {{"httpGet", {{"path", "/"}, {"port", kPort}}},
          {"periodSeconds", period_seconds},
          {"timeoutSeconds", timeout_seconds}};
}

OrderedJson Container(const std::string& image) {
  OrderedJson liveness = Probe(30, 10);
  liveness["initialDelaySeconds"] = 60;
  liveness["failureThreshold"] = 5;
  return {{"name", "tensorboard"},
          {"image", image},
          {"command", OrderedJson::array({"tensorboard"})},
          {"args", OrderedJson::array({"--logdir", kModelDirMount, "--host", "0.0.0.0", "--port",
                                       std::to_string(kPort)})},
          {"env", OrderedJson::array({{{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "void"}}})},
          {"ports", OrderedJson::array({{{"name", "http"}, {"containerPort", kPort}}})},
          {"readinessProbe", Probe(5, 5)},
          {"livenessProbe", liveness},
          {"resources",
           {{"requests", {{"cpu", "100m"}, {"memory", "512Mi"}}}, {"limits", {{"memory", "2Gi"}}}}},
          {"securityContext", ContainerSecurity()},
          {"volumeMounts",
           OrderedJson::array(
               {{{"name", "model-dir"}, {"mountPath", kModelDirMount}, {"readOnly", true}},
                {{"name", "tmp"}, {"mountPath", "/tmp"}}})}};
}

OrderedJson PodSpec(const std::string& image, const std::string& claim) {
  return {
      {"enableServiceLinks", false},
      {"automountServiceAccountToken", false},
      {"securityContext", PodSecurity(/*mounts_model_dir=*/true)},
      {"containers", OrderedJson::array({Container(image)})},
      {"volumes", OrderedJson::array(
                      {{{"name", "model-dir"}, {"persistentVolumeClaim", {{"claimName", claim}}}},
                       {{"name", "tmp"}, {"emptyDir", {{"sizeLimit", "512Mi"}}}}})}};
}

}  // namespace

std::vector<OrderedJson> TensorBoardObjects(const std::string& image, const std::string& claim) {
  const OrderedJson metadata = {{"name", kName}, {"labels", Labels()}};
  const OrderedJson pods = {{"matchLabels", Labels()}};
  return {
      {{"apiVersion", "apps/v1"},
       {"kind", "Deployment"},
       {"metadata", metadata},
       {"spec",
        {{"replicas", 1},
         {"strategy", {{"type", "Recreate"}}},
         {"selector", pods},
         {"template", {{"metadata", {{"labels", Labels()}}}, {"spec", PodSpec(image, claim)}}}}}},
      {{"apiVersion", "networking.k8s.io/v1"},
       {"kind", "NetworkPolicy"},
       {"metadata", metadata},
       {"spec",
        {{"podSelector", pods}, {"policyTypes", OrderedJson::array({"Ingress", "Egress"})}}}}};
}

}  // namespace muster
