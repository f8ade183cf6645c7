// The forms that the field emits, and what they come out as.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "common/cluster/cluster_config.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ClusterConfig Parse(const std::string& text) {
  absl::StatusOr<ClusterConfig> config = ParseTfConfig(text);
  EXPECT_TRUE(config.ok()) << text << ": " << config.status();
  return config.ok() ? *std::move(config) : ClusterConfig{};
}

void ExpectLocal(const ClusterConfig& config) {
  EXPECT_TRUE(config.local());
  EXPECT_EQ(config.task, std::nullopt);
  EXPECT_EQ(config.role(), TaskType::kChief);
  EXPECT_EQ(config.rank(), 0);
  EXPECT_EQ(config.world_size(), 1);
  EXPECT_EQ(config.chief(), std::nullopt);
  EXPECT_EQ(config.cluster.ToJson(), Json::object());
}

TEST(TfConfig, NothingIsLocal) {
  ExpectLocal(*ParseTfConfig(std::nullopt));
  for (const char* text : {"", " \n", "{}", R"({"cluster": {}})", R"({"cluster": null})",
                           R"({"cluster": {"worker": []}})", R"({"environment": "cloud"})"}) {
    ExpectLocal(Parse(text));
    EXPECT_THAT(Parse(text).warnings, IsEmpty());
  }
}

TEST(TfConfig, KubeflowTfJob) {
  const ClusterConfig config = Parse(R"({"cluster":{
      "chief":["mnist-chief-0.ns.svc:2222"],
      "evaluator":["mnist-evaluator-0.ns.svc:2222"],
      "ps":["mnist-ps-0.ns.svc:2222","mnist-ps-1.ns.svc:2222"],
      "worker":["mnist-worker-0.ns.svc:2222","mnist-worker-1.ns.svc:2222"]},
      "task":{"type":"worker","index":1},"environment":"cloud"})");
  EXPECT_EQ(config.task, (TaskId{TaskType::kWorker, 1}));
  EXPECT_EQ(config.role(), TaskType::kWorker);
  EXPECT_EQ(config.rank(), 2);
  EXPECT_EQ(config.world_size(), 3);
  EXPECT_EQ(config.chief(), (TaskId{TaskType::kChief, 0}));
  EXPECT_EQ(config.environment, "cloud");
  EXPECT_THAT(config.warnings, IsEmpty());
  EXPECT_EQ(config.cluster.AddressOf({TaskType::kPs, 1}).ToString(), "mnist-ps-1.ns.svc:2222");
  EXPECT_EQ(config.cluster.Count(TaskType::kEvaluator), 1);
  EXPECT_THAT(config.cluster.Members(),
              ElementsAre(TaskId{TaskType::kChief, 0}, TaskId{TaskType::kWorker, 0},
                          TaskId{TaskType::kWorker, 1}));
}

TEST(TfConfig, VertexWithExtraKeysAndMaster) {
  const ClusterConfig config = Parse(R"({"cluster":{
      "master":["cmle-training-master-ab12-0:2222"],
      "worker":["cmle-training-worker-ab12-0:2222"],
      "ps":["cmle-training-ps-ab12-0:2222"]},
      "environment":"cloud",
      "rpc_layer":"grpc",
      "job":"{\"python_module\": \"trainer.task\", \"args\": []}",
      "task":{"type":"master","index":0,"trial":"1","cloud":"c0ffee"}})");
  EXPECT_EQ(config.task, (TaskId{TaskType::kChief, 0}));
  EXPECT_EQ(config.role(), TaskType::kChief);
  EXPECT_EQ(config.rank(), 0);
  EXPECT_EQ(config.world_size(), 2);
  EXPECT_EQ(config.Who(), "chief 0");
}

TEST(TfConfig, VertexEvaluatorIsNotInTheCluster) {
  const ClusterConfig config = Parse(R"({"cluster":{
      "chief":["cmle-training-chief-ab12-0:2222"], "worker":["cmle-training-worker-ab12-0:2222"]},
      "environment":"cloud", "job":{}, "task":{"type":"evaluator","index":0,"trial":""}})");
  EXPECT_EQ(config.role(), TaskType::kEvaluator);
  EXPECT_EQ(config.rank(), std::nullopt);
  EXPECT_EQ(config.world_size(), 2);
  EXPECT_EQ(config.chief(), (TaskId{TaskType::kChief, 0}));
  EXPECT_THAT(config.warnings, IsEmpty());
}

TEST(TfConfig, EcosystemTemplateWritesTheIndexAsAString) {
  const ClusterConfig config = Parse(R"({"cluster":{
      "worker":["t-worker-0:5000","t-worker-1:5000"], "ps":["t-ps-0:5000"],
      "evaluator":["t-evaluator-0:5000"]}, "task":{"type":"worker","index":"1"}})");
  EXPECT_EQ(config.task, (TaskId{TaskType::kWorker, 1}));
  EXPECT_EQ(config.rank(), 1);
}

TEST(TfConfig, IntegralFloatIsAnIndex) {
  EXPECT_EQ(
      Parse(R"({"cluster":{"worker":["a:1","b:1"]},"task":{"type":"worker","index":1.0}})").rank(),
      1);
}

TEST(TfConfig, JobNamesHaveNoCase) {
  const ClusterConfig config = Parse(R"({"cluster":{"Chief":["a:1"],"WORKER":["b:1"],"PS":["c:1"],
      "Evaluator":["d:1"]},"task":{"type":"PS","index":0}})");
  EXPECT_EQ(config.role(), TaskType::kPs);
  EXPECT_EQ(config.cluster.ToJson(), Json::parse(R"({"chief":["a:1"],"worker":["b:1"],
      "ps":["c:1"],"evaluator":["d:1"]})"));
}

TEST(TfConfig, WithoutChiefWorkerZeroIsChief) {
  const std::string cluster = R"({"cluster":{"worker":["a:1","b:1"]},"task":)";
  const ClusterConfig first = Parse(cluster + R"({"type":"worker","index":0}})");
  EXPECT_EQ(first.role(), TaskType::kChief);
  EXPECT_EQ(first.rank(), 0);
  EXPECT_EQ(first.chief(), (TaskId{TaskType::kWorker, 0}));
  EXPECT_EQ(first.Who(), "worker 0");
  const ClusterConfig second = Parse(cluster + R"({"type":"worker","index":1}})");
  EXPECT_EQ(second.role(), TaskType::kWorker);
  EXPECT_EQ(second.rank(), 1);
  EXPECT_EQ(second.world_size(), 2);
}

TEST(TfConfig, CompleteSparseDictsAreLists) {
  const ClusterConfig config = Parse(R"({"cluster":{"chief":{"0":"c:1"},
      "worker":{"2":"w2:1","0":"w0:1","1":"w1:1"}},"task":{"type":"worker","index":2}})");
  EXPECT_EQ(config.cluster.ToJson(),
            Json::parse(R"({"chief":["c:1"],"worker":["w0:1","w1:1","w2:1"]})"));
  EXPECT_EQ(config.rank(), 3);
  EXPECT_FALSE(config.dynamic);
}

TEST(TfConfig, SparseDictOfElevenKeepsNumericOrder) {
  Json worker = Json::object();
  for (int i = 0; i < 11; ++i) worker[std::to_string(i)] = fmt::format("w{}:1", i);
  const Json json = {{"cluster", {{"worker", worker}}},
                     {"task", {{"type", "worker"}, {"index", 10}}}};
  const ClusterConfig config = Parse(json.dump());
  EXPECT_EQ(config.cluster.AddressOf({TaskType::kWorker, 2}).ToString(), "w2:1");
  EXPECT_EQ(config.cluster.AddressOf({TaskType::kWorker, 10}).ToString(), "w10:1");
}

TEST(TfConfig, SingleSparseWorkerIsACluster) {
  const ClusterConfig config =
      Parse(R"({"cluster":{"worker":{"0":"a:1"}},"task":{"type":"worker","index":0}})");
  EXPECT_FALSE(config.dynamic);
  EXPECT_EQ(config.world_size(), 1);
}

TEST(TfConfig, Ipv6InBrackets) {
  const ClusterConfig config = Parse(
      R"({"cluster":{"worker":["[2001:db8::1]:2222","[2001:db8::2]:2222"]},"task":{"type":"worker","index":1}})");
  EXPECT_EQ(config.cluster.AddressOf(*config.task).host, "2001:db8::2");
}

TEST(TfConfig, UnknownKeysAndCommentsAreIgnored) {
  Parse(R"({"cluster":{"worker":["a:1"]}, // by hand
      "model_dir":"gs://x","clusterName":"y","task":{"type":"worker","index":0,"x":[]}})");
}

TEST(TfConfig, NullAndEmptyJobsAreAbsent) {
  const ClusterConfig config = Parse(
      R"({"cluster":{"chief":null,"ps":[],"worker":["a:1"]},"task":{"type":"worker","index":0}})");
  EXPECT_EQ(config.cluster.ToJson(), Json::parse(R"({"worker":["a:1"]})"));
}

TEST(TfConfig, TaskWithoutClusterTrainsAloneAndSaysSo) {
  const ClusterConfig config =
      Parse(R"({"environment":"cloud","task":{"type":"master","index":0,"cloud":"x"}})");
  ExpectLocal(config);
  EXPECT_THAT(config.warnings, ElementsAre("there is a task (chief 0) but no cluster: this process "
                                           "trains alone"));
}

TEST(TfConfig, WarnsOfLoopbackAmongOthers) {
  const ClusterConfig config =
      Parse(R"({"cluster":{"worker":["h1:1","localhost:1"]},"task":{"type":"worker","index":0}})");
  EXPECT_THAT(
      config.warnings,
      ElementsAre("cluster.worker[1] is \"localhost:1\", which tasks on other hosts cannot "
                  "reach, while cluster.worker[0] is \"h1:1\": write the name of its host"));
  EXPECT_THAT(Parse(R"({"cluster":{"worker":["127.0.0.1:1","localhost:2"]},
                        "task":{"type":"worker","index":0}})")
                  .warnings,
              IsEmpty());
}

// Kubeflow's enableDynamicWorker, one form for each task type.
TEST(DynamicWorker, IsRecognisedInEveryTask) {
  const std::pair<const char*, TaskId> cases[] = {
      {R"({"cluster":{"worker":{"1":"w1:1"},"ps":["p0:1","p1:1"]},"task":{"type":"worker","index":1}})",
       {TaskType::kWorker, 1}},
      {R"({"cluster":{"worker":{"0":"w0:1"},"ps":["p0:1"]},"task":{"type":"worker","index":0}})",
       {TaskType::kWorker, 0}},
      {R"({"cluster":{"worker":{},"ps":["p3:1"]},"task":{"type":"ps","index":3}})",
       {TaskType::kPs, 3}},
      {R"({"cluster":{"worker":{},"ps":[]},"task":{"type":"chief","index":0}})",
       {TaskType::kChief, 0}},
      {R"({"cluster":{"worker":{},"ps":[]},"task":{"type":"evaluator","index":0}})",
       {TaskType::kEvaluator, 0}},
      // An older training operator.
      {R"({"sparseCluster":{"worker":{"1":"w1:1"},"ps":["p0:1"]},"task":{"type":"worker","index":1}})",
       {TaskType::kWorker, 1}},
  };
  for (const auto& [text, task] : cases) {
    const ClusterConfig config = Parse(text);
    EXPECT_TRUE(config.dynamic) << text;
    EXPECT_EQ(config.task, task);
    EXPECT_EQ(config.role(), task.type);
    EXPECT_EQ(config.rank(), std::nullopt);
    EXPECT_EQ(config.world_size(), std::nullopt);
    EXPECT_EQ(config.chief(), std::nullopt);
    EXPECT_THAT(config.warnings, ElementsAre(HasSubstr("set enableDynamicWorker to false")));
  }
  const ClusterConfig worker = Parse(cases[0].first);
  EXPECT_EQ(worker.dynamic->worker.at(1).ToString(), "w1:1");
  EXPECT_EQ(worker.dynamic->ps.size(), 2u);
}

TEST(DynamicWorker, WholeClustersAreNotTakenForIt) {
  for (
      const char* text : {
          R"({"cluster":{"worker":{"0":"a:1","1":"b:1"},"ps":["p:1"]},"task":{"type":"worker","index":0}})",
          R"({"cluster":{"worker":{"0":"a:1"},"ps":{"0":"p:1"}},"task":{"type":"worker","index":0}})",
          R"({"cluster":{"chief":["c:1"],"worker":{"0":"a:1"},"ps":["p:1"]},"task":{"type":"worker","index":0}})",
          R"({"cluster":{"chief":["c:1"],"worker":{},"ps":["p:1"]},"task":{"type":"ps","index":0}})",
      }) {
    EXPECT_FALSE(Parse(text).dynamic) << text;
  }
}

TEST(LaunchEnvironment, ReadsTfConfigOrIsLocal) {
  EXPECT_TRUE(ClusterFromEnvironment([](const std::string&) { return std::nullopt; })->local());
  const auto config =
      ClusterFromEnvironment([](const std::string& name) -> std::optional<std::string> {
        if (name != "TF_CONFIG") return std::nullopt;
        return R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":0}})";
      });
  EXPECT_EQ(config->Who(), "worker 0");
}

}  // namespace
}  // namespace muster
