// The roles, names and sizes of a request. tests/k8s/manifest_command_test.py has the objects.
#include "deploy/manifest/objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deploy/manifest/pods.h"

namespace muster {
namespace {

using testing::ElementsAre;

ManifestRequest Request() {
  ManifestRequest request;
  request.workers = 2;
  request.image = "muster";
  request.job = "{}\n";
  return request;
}

std::vector<std::string> Names(const std::vector<OrderedJson>& objects) {
  std::vector<std::string> names;
  for (const OrderedJson& object : objects) {
    const std::string kind = object["kind"];
    names.push_back(kind == "ConfigMap" ? kind
                                        : kind + "/" + std::string(object["metadata"]["name"]));
  }
  return names;
}

TEST(Manifest, Objects) {
  EXPECT_THAT(Names(ManifestObjects(Request())),
              ElementsAre("ConfigMap", "NetworkPolicy/muster", "PodDisruptionBudget/muster",
                          "PersistentVolumeClaim/muster-model-dir", "Service/muster",
                          "Job/muster-chief", "Job/muster-worker", "Job/muster-evaluator"));
  ManifestRequest request = Request();
  request.run_key = "00\n";
  request.evaluator = false;
  request.ps = 1;
  request.manifest_operator = ManifestOperator::kTfJob;
  EXPECT_THAT(Names(ManifestObjects(request)),
              ElementsAre("Secret/muster-run-key", "ConfigMap", "NetworkPolicy/muster",
                          "PodDisruptionBudget/muster", "PersistentVolumeClaim/muster-model-dir",
                          "TFJob/muster"));
}

TEST(Manifest, AJobSetNumbersItsJobs) {
  ManifestRequest request = Request();
  request.ps = 1;
  EXPECT_EQ(PodCluster(request).worker[1].ToString(), "muster-worker-1.muster:2222");
  request.manifest_operator = ManifestOperator::kJobSet;
  EXPECT_EQ(PodCluster(request).worker[1].ToString(), "muster-worker-0-1.muster:2222");
  EXPECT_EQ(PodCluster(request).ps[0].ToString(), "muster-ps-0-0.muster:2222");
}

TEST(Manifest, SharedMemoryGrowsWithTheGpus) {
  ManifestRequest request = Request();
  const PodRole worker{TaskType::kWorker, 2, true};
  const auto shm = [&] {
    const OrderedJson pod = PodTemplate(request, worker, "map");
    for (const OrderedJson& volume : pod["spec"]["volumes"])
      if (volume["name"] == "shm") return volume["emptyDir"]["sizeLimit"].get<std::string>();
    return std::string();
  };
  EXPECT_EQ(shm(), "512Mi");
  request.gpus = 8;
  EXPECT_EQ(shm(), "8704Mi");
}

}  // namespace
}  // namespace muster
