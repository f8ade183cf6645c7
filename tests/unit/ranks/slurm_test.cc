// Environments of Slurm steps, with the variables and forms of srun(1).
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

#include "tests/unit/ranks/environment_of.h"

namespace muster::ranks {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

// `srun` of 2 + 2 + 1 tasks on three of the job's four nodes. The job's own variables are there,
// too.
const char kStep[] = R"(
SLURM_JOBID=48152
SLURM_JOB_ID=48152
SLURM_JOB_NODELIST=gpu-a100-[03-05],login2
SLURM_JOB_NUM_NODES=4
SLURM_NODELIST=gpu-a100-[03-04],login2
SLURM_NTASKS=5
SLURM_STEPID=0
SLURM_STEP_ID=0
SLURM_STEP_NODELIST=gpu-a100-[03-04],login2
SLURM_STEP_NUM_NODES=3
SLURM_STEP_NUM_TASKS=5
SLURM_STEP_TASKS_PER_NODE=2(x2),1
SLURM_TASKS_PER_NODE=8(x4)
)";

absl::StatusOr<Ranks> Slurm(const std::string& text, RankOptions options = {}) {
  return ReadRanks(RankSource::kSlurm, EnvironmentOf(text), options);
}

std::vector<std::string> AddressesOf(const std::string& text, RankOptions options = {}) {
  const auto ranks = Slurm(text, std::move(options));
  EXPECT_TRUE(ranks.ok()) << ranks.status();
  return ranks.ok() ? Addresses(*ranks) : std::vector<std::string>();
}

std::string Refused(const std::string& text, RankOptions options = {}) {
  const auto ranks = Slurm(text, std::move(options));
  EXPECT_FALSE(ranks.ok());
  EXPECT_EQ(ExitCodeOf(ranks.status()), ExitCode::kConfiguration);
  return std::string(Message(ranks.status()));
}

TEST(Slurm, EachTaskFindsItselfAndTheOthers) {
  const struct {
    const char* task;
    int rank;
  } kTasks[] = {{"SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURMD_NODENAME=gpu-a100-03", 0},
                {"SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_NODEID=0 SLURMD_NODENAME=gpu-a100-03", 1},
                {"SLURM_PROCID=2 SLURM_LOCALID=0 SLURM_NODEID=1 SLURMD_NODENAME=gpu-a100-04", 2},
                {"SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NODEID=1 SLURMD_NODENAME=gpu-a100-04", 3},
                {"SLURM_PROCID=4 SLURM_LOCALID=0 SLURM_NODEID=2 SLURMD_NODENAME=login2", 4}};
  for (const auto& [task, rank] : kTasks) {
    const auto ranks = Slurm(kStep + std::string(task), {.port = 20000});
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    EXPECT_EQ(ranks->rank, rank);
    EXPECT_TRUE(ranks->started);
    EXPECT_EQ(ranks->restarts, 0);
    EXPECT_THAT(Addresses(*ranks),
                ElementsAre("gpu-a100-03:20000", "gpu-a100-03:20001", "gpu-a100-04:20000",
                            "gpu-a100-04:20001", "login2:20000"));
  }
}

TEST(Slurm, OneNode) {
  EXPECT_THAT(AddressesOf("SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_JOB_ID=1 SLURM_STEP_NODELIST=n7 "
                          "SLURM_STEP_TASKS_PER_NODE=3 SLURM_STEP_NUM_TASKS=3",
                          {.port = 12000}),
              ElementsAre("n7:12000", "n7:12001", "n7:12002"));
}

TEST(Slurm, CountsDifferByNodeAndMayBeZero) {
  EXPECT_THAT(AddressesOf("SLURM_PROCID=0 SLURM_JOB_ID=1 SLURM_STEP_NODELIST=n[2,10-12] "
                          "SLURM_STEP_TASKS_PER_NODE=1,0,3,1 SLURM_STEP_NUM_TASKS=5",
                          {.port = 12000}),
              ElementsAre("n2:12000", "n11:12000", "n11:12001", "n11:12002", "n12:12000"));
}

TEST(Slurm, ANodeThatComesTwiceKeepsItsPortsApart) {
  // --distribution=arbitrary with a file of hosts.
  EXPECT_THAT(AddressesOf("SLURM_PROCID=2 SLURM_LOCALID=1 SLURMD_NODENAME=tux2 SLURM_JOB_ID=1 "
                          "SLURM_STEP_NODELIST=tux[2,1-2] SLURM_STEP_TASKS_PER_NODE=1(x3) "
                          "SLURM_STEP_NUM_TASKS=3",
                          {.port = 12000}),
              ElementsAre("tux2:12000", "tux1:12000", "tux2:12001"));
}

TEST(Slurm, AThousandNodes) {
  const auto addresses = AddressesOf(
      "SLURM_PROCID=7999 SLURM_LOCALID=7 SLURMD_NODENAME=nid001000 SLURM_JOB_ID=1 "
      "SLURM_STEP_NODELIST=nid[000001-001000] SLURM_STEP_TASKS_PER_NODE=8(x1000) "
      "SLURM_STEP_NUM_TASKS=8000",
      {.port = 12000});
  ASSERT_THAT(addresses, SizeIs(8000));
  EXPECT_EQ(addresses.back(), "nid001000:12007");
}

TEST(Slurm, ARequeuedJobHasItsRestarts) {
  EXPECT_EQ(Slurm(std::string(kStep) + "SLURM_PROCID=0 SLURM_RESTART_COUNT=2")->restarts, 2);
}

TEST(Slurm, TheScriptOfAJobIsNoTask) {
  const auto ranks = Slurm(
      "SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n[1-2] SLURM_TASKS_PER_NODE=2(x2) SLURM_NTASKS=4 "
      "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURMD_NODENAME=n1",
      {.port = 12000});
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  EXPECT_FALSE(ranks->started);
  EXPECT_THAT(Addresses(*ranks), ElementsAre("n1:12000", "n1:12001", "n2:12000", "n2:12001"));
}

TEST(Slurm, ReservedPortsComeBeforeDerivedOnesAndAfterPort) {
  const std::string step = std::string(kStep) + "SLURM_PROCID=0 SLURM_STEP_RESV_PORTS=12003,13000";
  EXPECT_THAT(AddressesOf(step),
              ElementsAre("gpu-a100-03:12003", "gpu-a100-03:13000", "gpu-a100-04:12003",
                          "gpu-a100-04:13000", "login2:12003"));
  EXPECT_EQ(AddressesOf(step, {.port = 20000}).front(), "gpu-a100-03:20000");
  // Fewer than a node has tasks: a cluster with MpiParams=ports may reserve one for each step.
  EXPECT_EQ(AddressesOf(step + " SLURM_STEP_RESV_PORTS=12003"),
            AddressesOf(step + " SLURM_STEP_RESV_PORTS="));
}

TEST(Slurm, JobsAndStepsOfOneNodeHavePortsOfTheirOwn) {
  std::set<std::string> seen;
  const auto add = [&](int job, int step) {
    for (const std::string& address : AddressesOf(
             fmt::format("SLURM_PROCID=0 SLURM_JOB_ID={} SLURM_STEP_ID={} SLURM_STEP_NODELIST=n1 "
                         "SLURM_STEP_TASKS_PER_NODE=16 SLURM_STEP_NUM_TASKS=16",
                         job, step))) {
      EXPECT_TRUE(seen.insert(address).second) << address << " of job " << job << ", step " << step;
      const int port = std::stoi(address.substr(3));
      EXPECT_GE(port, 10000);
      EXPECT_LT(port, 32768);
    }
  };
  for (int job = 4812345; job < 4812345 + 200; ++job) add(job, 0);
  for (int step = 1; step < 3; ++step) add(4812345, step);
}

TEST(Slurm, RefusesWithOneSentence) {
  const std::string step = std::string(kStep) + "SLURM_PROCID=2 ";
  const std::pair<std::string, const char*> kCases[] = {
      {"", "SLURM_PROCID is not set, so Slurm did not start this process: put srun before it"},
      {"SLURM_PROCID=0", "SLURM_STEP_NODELIST is not set"},
      {"SLURM_PROCID=0 SLURM_STEP_NODELIST=n1", "SLURM_STEP_TASKS_PER_NODE is not set"},
      {"SLURM_PROCID=0 SLURM_JOB_NODELIST=n1", "SLURM_TASKS_PER_NODE is not set"},
      {step + "SLURM_PROCID=two", "SLURM_PROCID is \"two\", which is not an integer of at least 0"},
      {step + "SLURM_PROCID=-1", "SLURM_PROCID is \"-1\""},
      {step + "SLURM_PROCID=1e3", "SLURM_PROCID is \"1e3\""},
      {step + "SLURM_PROCID=99999999", "SLURM_PROCID is \"99999999\", which is above 65536"},
      {step + "SLURM_PROCID=5", "which is not below the 5 tasks of SLURM_STEP_TASKS_PER_NODE"},
      {step + "SLURM_STEP_NODELIST=gpu[1-",
       "SLURM_STEP_NODELIST is \"gpu[1-\", which has a bracket"},
      {step + "SLURM_STEP_TASKS_PER_NODE=2(x2)", "counts the tasks of 2 nodes"},
      {step + "SLURM_STEP_TASKS_PER_NODE=2(y2),1", "where a count such as 2(x3) belongs"},
      {step + "SLURM_STEP_NUM_TASKS=6", "is not the sum of SLURM_STEP_TASKS_PER_NODE, 5"},
      {step + "SLURM_STEP_TASKS_PER_NODE=60000(x2),1", "sums up to more than 65536"},
      {step + "SLURM_JOB_ID=x", "SLURM_JOB_ID is \"x\""},
      {step + "SLURM_JOB_ID= SLURM_JOBID=", "SLURM_JOB_ID is not set"},
      {step + "SLURM_STEP_RESV_PORTS=none", "SLURM_STEP_RESV_PORTS is \"none\""},
      // srun --distribution=cyclic.
      {step + "SLURM_LOCALID=1 SLURMD_NODENAME=gpu-a100-03",
       "SLURM_PROCID 2 is task 1 of gpu-a100-03, and by its place in SLURM_STEP_NODELIST it is "
       "task 0 of gpu-a100-04: the tasks must be in blocks, give srun --distribution=block"},
      {step + "SLURM_LOCALID=1", "is task 1 of its node"},
      {step + "SLURMD_NODENAME=login2", "give srun --distribution=block"}};
  for (const auto& [text, problem] : kCases) EXPECT_THAT(Refused(text), HasSubstr(problem)) << text;
  EXPECT_THAT(Refused(step, {.hosts = {{"a", 1}}}), HasSubstr("--hosts is given"));
  EXPECT_THAT(Refused(step, {.port = 65535}), HasSubstr("give a port from 1 to 65534"));
}

TEST(Slurm, ALongValueIsCutInTheSentence) {
  const std::string sentence =
      Refused("SLURM_PROCID=0 SLURM_STEP_TASKS_PER_NODE=1 SLURM_STEP_NODELIST=n[" +
              std::string(5000, '1') + "]");
  EXPECT_LT(sentence.size(), 400u);
  EXPECT_THAT(sentence, HasSubstr("1...\", which has"));
}

}  // namespace
}  // namespace muster::ranks
