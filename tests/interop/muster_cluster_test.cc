// `muster cluster` as a process, over what launchers write: the JSON contract, the human form, exit
// codes.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/interop/run_program.h"
#include "tests/paths.h"

namespace muster {
namespace {

using testing::HasSubstr;
using testing_support::ProgramResult;
using testing_support::RunProgram;

const std::string kMuster = testing_support::BinDir() + "/muster";

ProgramResult Cluster(const std::optional<std::string>& tf_config, bool json) {
  std::vector<std::string> command = {kMuster, "cluster"};
  if (json) command.push_back("--json");
  std::map<std::string, std::string> environment;
  if (tf_config) environment["TF_CONFIG"] = *tf_config;
  return RunProgram(command, environment);
}

bool OneLine(const std::string& text) {
  return !text.empty() && text.find('\n') == text.size() - 1;
}

struct Case {
  const char* name;
  const char* tf_config;
  const char* json;  // the whole output, byte by byte
};

constexpr Case
    kCorpus[] =
        {
            {"tensorflow tutorial",
             R"({"cluster":{"worker":["localhost:12345","localhost:23456"]},"task":{"type":"worker","index":1}})",
             R"({"task":"worker:1","role":"worker","rank":1,"world_size":2,"chief":"worker:0","cluster":{"worker":["localhost:12345","localhost:23456"]},"environment":null,"warnings":[]})"},
            {"worker 0 without a chief",
             R"({"cluster":{"worker":["h0:1","h1:1"]},"task":{"type":"worker","index":0}})",
             R"({"task":"worker:0","role":"chief","rank":0,"world_size":2,"chief":"worker:0","cluster":{"worker":["h0:1","h1:1"]},"environment":null,"warnings":[]})"},
            {"kubeflow worker",
             R"({"cluster":{"chief":["m-chief-0.ns.svc:2222"],"worker":["m-worker-0.ns.svc:2222","m-worker-1.ns.svc:2222"]},"task":{"type":"worker","index":1},"environment":"cloud"})",
             R"({"task":"worker:1","role":"worker","rank":2,"world_size":3,"chief":"chief:0","cluster":{"chief":["m-chief-0.ns.svc:2222"],"worker":["m-worker-0.ns.svc:2222","m-worker-1.ns.svc:2222"]},"environment":"cloud","warnings":[]})"},
            {"kubeflow ps",
             R"({"cluster":{"ps":["p0:2222"],"worker":["w0:2222"],"chief":["c0:2222"]},"task":{"type":"ps","index":0},"environment":"cloud"})",
             R"({"task":"ps:0","role":"ps","rank":null,"world_size":2,"chief":"chief:0","cluster":{"chief":["c0:2222"],"worker":["w0:2222"],"ps":["p0:2222"]},"environment":"cloud","warnings":[]})"},
            {"kubeflow evaluator since 1.2",
             R"({"cluster":{"chief":["c0:2222"],"worker":["w0:2222"],"evaluator":["e0:2222"]},"task":{"type":"evaluator","index":0},"environment":"cloud"})",
             R"({"task":"evaluator:0","role":"evaluator","rank":null,"world_size":2,"chief":"chief:0","cluster":{"chief":["c0:2222"],"worker":["w0:2222"],"evaluator":["e0:2222"]},"environment":"cloud","warnings":[]})"},
            {"vertex evaluator",
             R"({"cluster":{"chief":["cmle-training-chief-1-0:2222"]},"environment":"cloud","job":{"region":"x"},"task":{"type":"evaluator","index":0,"trial":"1","cloud":"c"}})",
             R"({"task":"evaluator:0","role":"evaluator","rank":null,"world_size":1,"chief":"chief:0","cluster":{"chief":["cmle-training-chief-1-0:2222"]},"environment":"cloud","warnings":[]})"},
            {"vertex custom container",
             R"({"cluster":{"master":["cmle-training-master-1-0:2222"],"worker":["cmle-training-worker-1-0:2222"]},"environment":"cloud","job":"{}","task":{"type":"master","index":0}})",
             R"({"task":"chief:0","role":"chief","rank":0,"world_size":2,"chief":"chief:0","cluster":{"chief":["cmle-training-master-1-0:2222"],"worker":["cmle-training-worker-1-0:2222"]},"environment":"cloud","warnings":[]})"},
            {"ecosystem template",
             R"({"cluster":{"worker":["w0:5000","w1:5000"],"ps":["p0:5000"],"evaluator":["e0:5000"]},"task":{"type":"worker","index":"1"}})",
             R"({"task":"worker:1","role":"worker","rank":1,"world_size":2,"chief":"worker:0","cluster":{"worker":["w0:5000","w1:5000"],"ps":["p0:5000"],"evaluator":["e0:5000"]},"environment":null,"warnings":[]})"},
            {"sparse and complete, job names in any case, IPv6",
             R"({"cluster":{"Worker":{"1":"[2001:db8::2]:1","0":"[2001:db8::1]:1"}},"task":{"type":"WORKER","index":1}})",
             R"({"task":"worker:1","role":"worker","rank":1,"world_size":2,"chief":"worker:0","cluster":{"worker":["[2001:db8::1]:1","[2001:db8::2]:1"]},"environment":null,"warnings":[]})"},
            {"empty object", "{}",
             R"({"task":null,"role":"chief","rank":0,"world_size":1,"chief":null,"cluster":{},"environment":null,"warnings":[]})"},
            {"set but empty", "",
             R"({"task":null,"role":"chief","rank":0,"world_size":1,"chief":null,"cluster":{},"environment":null,"warnings":[]})"},
            {"kubeflow dynamic worker", R"({"cluster":{"worker":{"1":"w1:2222"},"ps":["p0:2222","p1:2222"]},"task":{"type":"worker","index":1}})", R"({"task":"worker:1","role":"worker","rank":null,"world_size":null,"chief":null,"cluster":{"worker":{"1":"w1:2222"},"ps":["p0:2222","p1:2222"]},"environment":null,"warnings":["this is Kubeflow's dynamic-worker form, in which each task knows another part of the cluster and nobody the number of members: training cannot start from it, set enableDynamicWorker to false in the TFJob"]})"},
};

TEST(MusterCluster, JsonContract) {
  for (const Case& c : kCorpus) {
    const ProgramResult result = Cluster(c.tf_config, /*json=*/true);
    EXPECT_EQ(result.exit_code, 0) << c.name << ": " << result.err;
    EXPECT_EQ(result.out, std::string(c.json) + "\n") << c.name;
    EXPECT_EQ(result.err, "") << c.name;
  }
}

TEST(MusterCluster, UnsetIsLocal) {
  const ProgramResult result = Cluster(std::nullopt, /*json=*/true);
  EXPECT_EQ(result.exit_code, 0);
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["task"], nullptr);
  EXPECT_EQ(json["role"], "chief");
  EXPECT_EQ(Cluster(std::nullopt, /*json=*/false).out,
            "no cluster: this process trains alone, as chief, rank 0 of 1\n");
}

TEST(MusterCluster, HumanForm) {
  const ProgramResult result = Cluster(
      R"({"cluster":{"chief":["host-a:2222"],"worker":["b:2222","c:2222"],"ps":["d:1"]},"task":{"type":"worker","index":1},"environment":"cloud"})",
      /*json=*/false);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out,
            "rank  task      address\n"
            "   0  chief 0   host-a:2222\n"
            "   1  worker 0  b:2222\n"
            "   2  worker 1  c:2222       <- this task\n"
            "   -  ps 0      d:1\n"
            "this task: worker 1, role worker, rank 2 of 3\n"
            "chief: chief 0\n"
            "start this task with: muster-worker --job FILE\n"
            "strategy: parameter_server, since there are ps tasks: workers train, the chief does "
            "not\n"
            "environment: cloud\n");
  EXPECT_EQ(result.err, "");
}

TEST(MusterCluster, RefusesWithOneLine) {
  for (const bool json : {false, true}) {
    const ProgramResult result =
        Cluster(R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":5}})", json);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(
        result.err,
        "muster cluster: TF_CONFIG: task.index is 5, but cluster.worker has 1 address: set it "
        "to 0, or add the missing addresses\n");
  }
}

TEST(MusterCluster, MutatedTextsEndWithZeroOrTwoAndOneLine) {
  std::mt19937 random(11);
  for (int round = 0; round < 120; ++round) {
    std::string text = kCorpus[random() % std::size(kCorpus)].tf_config;
    if (text.empty()) continue;
    if (round % 2 == 0) {
      text.resize(random() % text.size());
    } else {
      text[random() % text.size()] = static_cast<char>(1 + random() % 255);
    }
    const ProgramResult result = Cluster(text, /*json=*/true);
    if (result.exit_code == 0) {
      EXPECT_TRUE(OneLine(result.out)) << text;
      EXPECT_EQ(result.err, "") << text;
    } else {
      EXPECT_EQ(result.exit_code, 2) << text;
      EXPECT_EQ(result.out, "") << text;
      EXPECT_TRUE(OneLine(result.err)) << text << "\n" << result.err;
    }
  }
}

TEST(Muster, MistakesOnTheCommandLineEndWithTwo) {
  const ProgramResult unknown = RunProgram({kMuster, "clutser"}, {});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_EQ(unknown.err, "muster: unknown command \"clutser\", did you mean \"cluster\"?\n");
  EXPECT_EQ(RunProgram({kMuster, "cluster", "--jsn"}, {}).exit_code, 2);
  const ProgramResult nothing = RunProgram({kMuster}, {});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("cluster"));
  EXPECT_EQ(RunProgram({kMuster, "--help"}, {}).exit_code, 0);
  EXPECT_EQ(RunProgram({kMuster, "cluster", "--help"}, {}).exit_code, 0);
}

}  // namespace
}  // namespace muster
