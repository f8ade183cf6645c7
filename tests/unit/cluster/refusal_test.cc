// Every refusal, for its whole sentence: field, value, mend; exit code 2.
#include <gmock/gmock.h>

#include "common/cluster/cluster_config.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

struct Refusal {
  const char* text;
  const char* sentence;
};

constexpr Refusal kRefusals[] = {
    // JSON.
    {R"({"cluster": {"worker": ["a:1"]}, "task")",
     "TF_CONFIG is not valid JSON: line 1, column 39: syntax error while parsing object separator "
     "- "
     "unexpected end of input; expected ':'"},
    {"{\n  \"cluster\": ]\n}",
     "TF_CONFIG is not valid JSON: line 2, column 14: syntax error while parsing value - "
     "unexpected "
     "']'; expected '[', '{', or a literal"},
    {"{'cluster': {}}",
     "TF_CONFIG is not valid JSON: line 1, column 2: syntax error while parsing object key - "
     "invalid "
     "literal; last read: '{''; expected string literal; it looks like a Python dict: write "
     "strings "
     "in double quotes, as json.dumps does"},
    {R"({"task": {"type": "worker", "index": $(JOB_COMPLETION_INDEX)}})",
     "TF_CONFIG is not valid JSON: line 1, column 38: syntax error while parsing value - invalid "
     "literal; last read: '\"index\": $'; a variable in it was not expanded: define that variable "
     "before TF_CONFIG"},
    {R"({"cluster": {"worker": ["a:1"], "worker": ["b:1"]}})",
     "TF_CONFIG: key \"worker\" appears twice in one object: keep one of the two"},
    {"[]", "TF_CONFIG is a list, which is no object: write {\"cluster\": {...}, \"task\": {...}}"},
    {"null", "TF_CONFIG is null, which is no object: write {\"cluster\": {...}, \"task\": {...}}"},
    // The cluster.
    {R"({"cluster": "a:1"})",
     "TF_CONFIG: cluster is \"a:1\", which names no jobs: write {\"worker\": [\"host:port\", "
     "...]}"},
    {R"({"cluster": {"wroker": ["a:1"]}})",
     "TF_CONFIG: cluster has the unknown job \"wroker\": did you mean \"worker\"?"},
    {R"({"cluster": {"tpu_job_name": ["a:1"]}})",
     "TF_CONFIG: cluster has the unknown job \"tpu_job_name\": use chief, worker, ps or evaluator"},
    {R"({"cluster": {"chief": ["a:1", "b:1"]}, "task": {"type": "chief", "index": 0}})",
     "TF_CONFIG: cluster.chief lists 2 addresses, but a cluster has one chief: move the others to "
     "cluster.worker"},
    {R"({"cluster": {"chief": ["a:1"], "master": ["b:1"]}, "task": {"type": "chief", "index": 0}})",
     "TF_CONFIG: cluster has both \"chief\" and \"master\", which mean the same, and a cluster has "
     "one chief: keep one of them"},
    {R"({"cluster": {"Worker": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}})",
     "TF_CONFIG: cluster has both \"Worker\" and \"worker\", which mean the same: keep one of "
     "them"},
    {R"({"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0}})",
     "TF_CONFIG: cluster.worker is \"a:1\", which is no list: write [\"host:port\", ...]"},
    {R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}})",
     "TF_CONFIG: cluster has neither a chief nor a worker, so nobody would train: add a \"worker\" "
     "job"},
    {R"({"cluster": {"worker": {"0": "a:1", "2": "b:1"}}, "task": {"type": "worker", "index": 0}})",
     "TF_CONFIG: cluster.worker has index 2 but not 1: list every index from 0"},
    {R"({"cluster": {"worker": {"1": "a:1"}}, "task": {"type": "worker", "index": 1}})",
     "TF_CONFIG: cluster.worker has index 1 but not 0: list every index from 0"},
    {R"({"cluster": {"worker": {"first": "a:1"}}, "task": {"type": "worker", "index": 0}})",
     "TF_CONFIG: cluster.worker has the key \"first\", which is not a number: write the indexes 0, "
     "1, ... as keys"},
    {R"({"cluster": {"worker": {"-1": "a:1"}}, "task": {"type": "worker", "index": 0}})",
     "TF_CONFIG: cluster.worker has the key \"-1\", which is negative: write the indexes 0, 1, ... "
     "as keys"},
    {R"({"cluster": {"worker": {"0": "a:1", "0.0": "b:1"}}, "task": {"type": "worker", "index": 0}})",
     "TF_CONFIG: cluster.worker has two addresses for index 0: keep one"},
    // Addresses.
    {R"({"cluster": {"worker": [2222]}, "task": {"type": "worker", "index": 0}})",
     "TF_CONFIG: cluster.worker[0] is 2222, which is no address: write \"host:port\""},
    {R"({"cluster": {"worker": ["a:1", "b"]}, "task": {"type": "worker", "index": 0}})",
     "TF_CONFIG: cluster.worker[1] is \"b\", which has no port: write b:2222"},
    {R"({"cluster": {"chief": ["a:0"]}, "task": {"type": "chief", "index": 0}})",
     "TF_CONFIG: cluster.chief[0] is \"a:0\", which has a port out of range: write one from 1 to "
     "65535"},
    {R"({"cluster": {"worker": ["a:99999"]}, "task": {"type": "worker", "index": 0}})",
     "TF_CONFIG: cluster.worker[0] is \"a:99999\", which has a port out of range: write one from 1 "
     "to 65535"},
    {R"({"cluster": {"worker": ["a:http"]}, "task": {"type": "worker", "index": 0}})",
     "TF_CONFIG: cluster.worker[0] is \"a:http\", which has a port that is not a number: write one "
     "from 1 to 65535"},
    {R"({"cluster": {"worker": ["grpc://a:1"]}, "task": {"type": "worker", "index": 0}})",
     "TF_CONFIG: cluster.worker[0] is \"grpc://a:1\", which has a scheme: write host:port without "
     "it"},
    {R"({"cluster": {"worker": ["::1:2222"]}, "task": {"type": "worker", "index": 0}})",
     "TF_CONFIG: cluster.worker[0] is \"::1:2222\", which has more than one colon: write an IPv6 "
     "address in brackets, [2001:db8::1]:2222"},
    {R"({"cluster": {"worker": ["a\nb:1"]}, "task": {"type": "worker", "index": 0}})",
     "TF_CONFIG: cluster.worker[0] is \"a\\nb:1\", which has no valid host name or IP address: "
     "write "
     "host:port"},
    {R"({"cluster": {"chief": ["a:1"], "worker": ["b:1", "A:1"]}, "task": {"type": "chief", "index": 0}})",
     "TF_CONFIG: cluster.worker[1] is \"A:1\", which is the address of cluster.chief[0] too: give "
     "each task an address of its own"},
    {R"({"cluster": {"worker": ["a:1"], "evaluator": ["a:1"]}, "task": {"type": "worker", "index": 0}})",
     "TF_CONFIG: cluster.evaluator[0] is \"a:1\", which is the address of cluster.worker[0] too: "
     "give each task an address of its own"},
    // The task.
    {R"({"cluster": {"worker": ["a:1"]}})",
     "TF_CONFIG: task is missing: add {\"type\": ..., \"index\": ...} to say which task of the "
     "cluster this process is"},
    {R"({"cluster": {"worker": ["a:1"]}, "task": "worker:0"})",
     "TF_CONFIG: task is \"worker:0\", which names no task: write {\"type\": \"worker\", "
     "\"index\": "
     "0}"},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"index": 0}})",
     "TF_CONFIG: task.type is missing: set it to chief, worker, ps or evaluator"},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": 1, "index": 0}})",
     "TF_CONFIG: task.type is 1, which is no task type: set it to chief, worker, ps or evaluator"},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "cheif", "index": 0}})",
     "TF_CONFIG: task.type is \"cheif\", which is unknown: did you mean \"chief\"?"},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "", "index": 0}})",
     "TF_CONFIG: task.type is \"\", which is unknown: use chief, worker, ps or evaluator"},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}})",
     "TF_CONFIG: task.index is missing: set it to the number of this worker, from 0"},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}})",
     "TF_CONFIG: task.index is -1, which is negative: set it to the number of this worker, from 0"},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "-1"}})",
     "TF_CONFIG: task.index is \"-1\", which is negative: set it to the number of this worker, "
     "from "
     "0"},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1.7}})",
     "TF_CONFIG: task.index is 1.7, which is not a whole number: set it to the number of this "
     "worker, from 0"},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "one"}})",
     "TF_CONFIG: task.index is \"one\", which is not a number: set it to the number of this "
     "worker, "
     "from 0"},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": true}})",
     "TF_CONFIG: task.index is true, which is not a number: set it to the number of this worker, "
     "from 0"},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}})",
     "TF_CONFIG: task.index is 1, but cluster.worker has 1 address: set it to 0, or add the "
     "missing "
     "addresses"},
    {R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1e300}})",
     "TF_CONFIG: task.index is 1e+300, but cluster.worker has 2 addresses: set it to a number from "
     "0 "
     "to 1, or add the missing addresses"},
    {R"({"cluster": {"worker": ["a:1"], "evaluator": ["e:1"]}, "task": {"type": "evaluator", "index": 1}})",
     "TF_CONFIG: task.index is 1, but cluster.evaluator has 1 address: set it to 0, or add the "
     "missing addresses"},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}})",
     "TF_CONFIG: task.type is \"ps\", but the cluster has no ps: add cluster.ps to the cluster, or "
     "correct task.type"},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}})",
     "TF_CONFIG: task.type is \"chief\", but the cluster has no chief: add cluster.chief to the "
     "cluster, or correct task.type"},
    {R"({"task": {"type": "worker", "index": 2}})",
     "TF_CONFIG: task is worker 2, but cluster is missing or empty: list the addresses of all "
     "tasks "
     "in cluster"},
    {R"({"clusters": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})",
     "TF_CONFIG: cluster is missing, but there is \"clusters\": write it as \"cluster\""},
};

TEST(TfConfigRefusal, IsOneSentenceWithFieldValueAndMend) {
  for (const Refusal& refusal : kRefusals) {
    const absl::StatusOr<ClusterConfig> config = ParseTfConfig(refusal.text);
    ASSERT_FALSE(config.ok()) << refusal.text;
    EXPECT_EQ(Message(config.status()), refusal.sentence) << refusal.text;
    EXPECT_EQ(ExitCodeOf(config.status()), ExitCode::kConfiguration) << refusal.text;
  }
}

// Also where a text is read as a number.
TEST(TfConfigRefusal, DepthIsBounded) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const auto& [text, sentence] :
       {std::pair<std::string, const char*>{deep, "TF_CONFIG is nested deeper than 64 levels"},
        {R"({"cluster": {"worker": ["a:1"], "more": )" + deep + "}}",
         "TF_CONFIG is nested deeper than 64 levels"},
        {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": ")" + deep +
             "\"}}",
         "is not a number"},
        {R"({"cluster": {"worker": {")" + deep + "\": \"a:1\"}}}", "is not a number"}}) {
    const absl::StatusOr<ClusterConfig> config = ParseTfConfig(text);
    ASSERT_FALSE(config.ok());
    EXPECT_EQ(ExitCodeOf(config.status()), ExitCode::kConfiguration);
    EXPECT_THAT(std::string(Message(config.status())), HasSubstr(sentence));
    EXPECT_LT(Message(config.status()).size(), 300u);
  }
}

TEST(TfConfigRefusal, ShowsLongValuesShort) {
  const Json json = {{"cluster", {{"worker", {std::string(5000, 'x')}}}},
                     {"task", {{"type", "worker"}, {"index", 0}}}};
  EXPECT_LT(Message(ParseTfConfig(json.dump()).status()).size(), 250u);
}

ClusterConfig Config(const char* cluster, const char* type, int index) {
  const Json json = {{"cluster", Json::parse(cluster)},
                     {"task", {{"type", type}, {"index", index}}}};
  const absl::StatusOr<ClusterConfig> config = ParseTfConfig(json.dump());
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ClusterConfig{});
}

constexpr char kSync[] = R"({"chief": ["c:1"], "worker": ["a:1", "b:1"]})";
constexpr char kWithPs[] = R"({"chief": ["c:1"], "worker": ["a:1"], "ps": ["p:1", "q:1"]})";
constexpr char kDynamic[] =
    "TF_CONFIG: cluster is Kubeflow's dynamic-worker form, in which no task knows how many members "
    "there are: set enableDynamicWorker to false in the TFJob";

TEST(CheckStrategy, AcceptsWhatFits) {
  using K = StrategyKind;
  EXPECT_TRUE(CheckStrategy(Config(kSync, "chief", 0), K::kMultiWorkerMirrored).ok());
  EXPECT_TRUE(CheckStrategy(Config(kWithPs, "ps", 0), K::kParameterServer).ok());
  EXPECT_TRUE(
      CheckStrategy(Config(R"({"worker":["a:1"],"ps":["p:1"]})", "ps", 0), K::kParameterServer)
          .ok());
  for (const K kind : {K::kMirrored, K::kOneDevice, K::kCentralStorage, K::kMultiWorkerMirrored}) {
    EXPECT_TRUE(CheckStrategy(ClusterConfig{}, kind).ok());
    EXPECT_TRUE(
        CheckStrategy(Config(R"({"chief":["c:1"],"evaluator":["e:1"]})", "chief", 0), kind).ok());
  }
}

TEST(CheckStrategy, RefusesPsWithAnyOtherStrategy) {
  for (const StrategyKind kind : {StrategyKind::kMultiWorkerMirrored, StrategyKind::kMirrored,
                                  StrategyKind::kOneDevice, StrategyKind::kCentralStorage}) {
    const absl::Status status = CheckStrategy(Config(kWithPs, "chief", 0), kind);
    EXPECT_EQ(Message(status),
              "strategy is \"" + std::string(StrategyName(kind)) +
                  "\", which has no use for the 2 ps of the cluster: set strategy to "
                  "\"parameter_server\", or remove cluster.ps");
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration);
  }
}

TEST(CheckStrategy, RefusesParameterServerWithoutPsOrWorkers) {
  EXPECT_EQ(
      Message(CheckStrategy(Config(kSync, "chief", 0), StrategyKind::kParameterServer)),
      "strategy is \"parameter_server\", but the cluster has no ps: add a \"ps\" job to it, or "
      "set strategy to \"multi_worker_mirrored\"");
  EXPECT_EQ(Message(CheckStrategy(ClusterConfig{}, StrategyKind::kParameterServer)),
            "strategy is \"parameter_server\", but TF_CONFIG names no cluster: add a \"ps\" job to "
            "it, or set strategy to \"multi_worker_mirrored\"");
  EXPECT_EQ(
      Message(CheckStrategy(Config(R"({"chief":["c:1"],"ps":["p:1"]})", "chief", 0),
                            StrategyKind::kParameterServer)),
      "strategy is \"parameter_server\", in which the chief computes no steps, but the cluster "
      "has no worker: add a \"worker\" job to it");
}

TEST(CheckStrategy, RefusesSeveralMembersInOneProcess) {
  for (const StrategyKind kind :
       {StrategyKind::kMirrored, StrategyKind::kOneDevice, StrategyKind::kCentralStorage}) {
    EXPECT_EQ(Message(CheckStrategy(Config(kSync, "chief", 0), kind)),
              "strategy is \"" + std::string(StrategyName(kind)) +
                  "\", which trains in one process, but the cluster has 3 members: set strategy to "
                  "\"multi_worker_mirrored\", or start one task alone");
  }
}

TEST(CheckBinary, AcceptsTheTasksOwnBinary) {
  for (const TaskType type : {TaskType::kChief, TaskType::kWorker, TaskType::kPs}) {
    EXPECT_TRUE(
        CheckBinary(Config(kWithPs, std::string(TaskTypeName(type)).c_str(), 0), type).ok());
  }
  EXPECT_TRUE(CheckBinary(Config(kSync, "evaluator", 0), TaskType::kEvaluator).ok());
  EXPECT_TRUE(CheckBinary(ClusterConfig{}, TaskType::kWorker).ok());
  EXPECT_TRUE(CheckBinary(ClusterConfig{}, TaskType::kChief).ok());
}

TEST(CheckBinary, WorkerZeroWithoutChiefTakesTheChiefsRole) {
  const ClusterConfig config = Config(R"({"worker":["a:1","b:1"]})", "worker", 0);
  EXPECT_TRUE(CheckBinary(config, TaskType::kWorker).ok());
  EXPECT_EQ(config.role(), TaskType::kChief);
}

TEST(CheckBinary, SaysWhichBinaryToStart) {
  EXPECT_EQ(Message(CheckBinary(Config(kSync, "worker", 1), TaskType::kChief)),
            "TF_CONFIG: task is worker 1, but this is muster-chief: start muster-worker for this "
            "task");
  EXPECT_EQ(Message(CheckBinary(Config(kSync, "chief", 0), TaskType::kWorker)),
            "TF_CONFIG: task is chief 0, but this is muster-worker: start muster-chief for this "
            "task");
  EXPECT_EQ(Message(CheckBinary(Config(R"({"worker":["a:1"]})", "worker", 0), TaskType::kChief)),
            "TF_CONFIG: task is worker 0, but this is muster-chief: start muster-worker for this "
            "task");
  EXPECT_EQ(Message(CheckBinary(ClusterConfig{}, TaskType::kPs)),
            "TF_CONFIG is not set, so there is no cluster that muster-ps could serve: set it, or "
            "start muster-worker to train in one process");
}

TEST(CheckBinary, AClusterHasOneEvaluator) {
  EXPECT_EQ(
      Message(CheckBinary(Config(kSync, "evaluator", 1), TaskType::kEvaluator)),
      "TF_CONFIG: task is evaluator 1, but a cluster has one evaluator: start evaluator 0 only");
}

TEST(DynamicWorker, IsRefusedForStarting) {
  const ClusterConfig config = Config(R"({"worker":{"1":"w:1"},"ps":["p:1"]})", "worker", 1);
  ASSERT_TRUE(config.dynamic);
  EXPECT_EQ(Message(CheckBinary(config, TaskType::kWorker)), kDynamic);
  EXPECT_EQ(Message(CheckStrategy(config, StrategyKind::kParameterServer)), kDynamic);
}

}  // namespace
}  // namespace muster
