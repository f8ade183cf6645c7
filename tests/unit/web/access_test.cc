#include "common/web/access.h"

#include <gmock/gmock.h>

#include "tests/unit/rpc/identities.h"

namespace muster::web {
namespace {

using ::testing::HasSubstr;

ClusterConfig Cluster(const std::string& cluster, const std::string& task) {
  auto config = ParseTfConfig(R"({"cluster": )" + cluster + R"(, "task": )" + task + "}");
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

constexpr char kTwoHosts[] =
    R"({"chief": ["a:1"], "worker": ["b:1", "a:2", "A:3", "b:2"], "evaluator": ["b:3"]})";

int PortOf(const std::string& cluster, const std::string& task, int64_t first) {
  Job job;
  job.status.metrics_port = first;
  const auto port = MetricsPort(Cluster(cluster, task), job);
  EXPECT_TRUE(port.ok()) << port.status();
  return port.value_or(-1);
}

TEST(AccessTest, EachTaskOfAHostHasTheNextPort) {
  EXPECT_EQ(PortOf(kTwoHosts, R"({"type": "chief", "index": 0})", 9400), 9400);
  EXPECT_EQ(PortOf(kTwoHosts, R"({"type": "worker", "index": 0})", 9400), 9400);
  EXPECT_EQ(PortOf(kTwoHosts, R"({"type": "worker", "index": 1})", 9400), 9401);
  EXPECT_EQ(PortOf(kTwoHosts, R"({"type": "worker", "index": 2})", 9400), 9402);
  EXPECT_EQ(PortOf(kTwoHosts, R"({"type": "worker", "index": 3})", 9400), 9401);
  EXPECT_EQ(PortOf(kTwoHosts, R"({"type": "evaluator", "index": 0})", 9400), 9402);
}

TEST(AccessTest, AllLoopbackAddressesAreOneHost) {
  constexpr char kLoopback[] =
      R"({"chief": ["localhost:1"], "worker": ["127.0.0.1:2", "[::1]:3", "LocalHost:4"]})";
  EXPECT_EQ(PortOf(kLoopback, R"({"type": "chief", "index": 0})", 9400), 9400);
  EXPECT_EQ(PortOf(kLoopback, R"({"type": "worker", "index": 0})", 9400), 9401);
  EXPECT_EQ(PortOf(kLoopback, R"({"type": "worker", "index": 1})", 9400), 9402);
  EXPECT_EQ(PortOf(kLoopback, R"({"type": "worker", "index": 2})", 9400), 9403);
}

TEST(AccessTest, AnEvaluatorThatIsNotListedComesLast) {
  constexpr char kEvaluator[] = R"({"type": "evaluator", "index": 0})";
  EXPECT_EQ(PortOf(R"({"chief": ["localhost:1"], "worker": ["localhost:2"]})", kEvaluator, 9400),
            9402);
  EXPECT_EQ(PortOf(R"({"chief": ["a:1"], "worker": ["b:1"]})", kEvaluator, 9400), 9402);
  EXPECT_EQ(PortOf(R"({"chief": ["a:1"], "worker": ["b:1"]})",
                   R"({"type": "evaluator", "index": 1})", 9400),
            9403);
}

TEST(AccessTest, AnEvaluatorThatIsNotListedIsAloneInItsPod) {
  Job job;
  job.status.metrics_port = 9400;
  ClusterConfig cluster =
      Cluster(R"({"chief": ["a:1"], "worker": ["b:1"]})", R"({"type": "evaluator", "index": 0})");
  cluster.environment = "cloud";
  EXPECT_EQ(*MetricsPort(cluster, job), 9400);
}

TEST(AccessTest, NoPortIsNone) {
  EXPECT_EQ(PortOf(kTwoHosts, R"({"type": "worker", "index": 1})", 0), 0);
  Job job;
  job.status.metrics_port = 9400;
  EXPECT_EQ(*MetricsPort(ClusterConfig(), job), 9400);
}

TEST(AccessTest, APortAbove65535IsRefused) {
  Job job;
  job.status.metrics_port = 65535;
  const auto port = MetricsPort(Cluster(kTwoHosts, R"({"type": "worker", "index": 2})"), job);
  EXPECT_EQ(ExitCodeOf(port.status()), ExitCode::kConfiguration);
  EXPECT_EQ(Message(port.status()),
            "status.metrics_port is 65535, and this is task 3 of its host, for which it would be "
            "65537: choose a lower one, ports end at 65535");
}

TEST(AccessTest, OnlyLoopbackNeedsNoProof) {
  const rpc::TestIdentities identities;
  ClusterConfig local = Cluster(R"({"chief": ["localhost:1"], "worker": ["127.0.0.1:2"]})",
                                R"({"type": "chief", "index": 0})");
  local.identity = identities.Of("chief:0");
  Job job;
  EXPECT_EQ(OptionsFor(local, job, 1).identity, nullptr);
  job.status.address = "0.0.0.0";
  EXPECT_EQ(OptionsFor(local, job, 1).identity, local.identity);
  EXPECT_FALSE(IsOpen(local, OptionsFor(local, job, 1)));
  ClusterConfig remote = Cluster(kTwoHosts, R"({"type": "chief", "index": 0})");
  remote.identity = local.identity;
  job.status.address = "127.0.0.1";
  EXPECT_EQ(OptionsFor(remote, job, 1).identity, local.identity);
}

TEST(AccessTest, WithoutAKeyALoopbackClusterMayBeOpen) {
  const ClusterConfig loopback =
      Cluster(R"({"chief": ["localhost:1"]})", R"({"type": "chief", "index": 0})");
  const ClusterConfig remote = Cluster(kTwoHosts, R"({"type": "chief", "index": 0})");
  Job job;
  for (const ClusterConfig& cluster : {loopback, ClusterConfig()})
    EXPECT_FALSE(IsOpen(cluster, OptionsFor(cluster, job, 1)));
  job.status.address = "0.0.0.0";
  for (const ClusterConfig& cluster : {loopback, ClusterConfig()})
    EXPECT_TRUE(IsOpen(cluster, OptionsFor(cluster, job, 1)));
  EXPECT_FALSE(IsOpen(remote, OptionsFor(remote, job, 1)));
}

}  // namespace
}  // namespace muster::web
