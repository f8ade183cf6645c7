#include "deploy/launcher/gpus.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>

namespace muster::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<PlannedTask> Tasks(const ClusterSize& size) {
  std::vector<int> ports(size.processes());
  std::iota(ports.begin(), ports.end(), 20000);
  return PlanCluster(size, ports);
}

std::vector<std::string> Shown(const absl::StatusOr<GpuPlan>& plan) {
  std::vector<std::string> shown;
  if (!plan.ok()) return {std::string(plan.status().message())};
  for (const auto& value : plan->visible) shown.push_back(value ? *value : "(as it is)");
  return shown;
}

constexpr const char* kFour[] = {"A", "B", "C", "D"};
std::vector<std::string> Gpus(int count) { return {kFour, kFour + count}; }

TEST(AssignGpus, GivesEachMemberItsOwnAndTheEvaluatorTheCpu) {
  const auto plan = AssignGpus(Gpus(2), Tasks({.workers = 1, .evaluator = true}), {});
  EXPECT_THAT(Shown(plan), ElementsAre("A", "B", ""));
  EXPECT_EQ(plan->note, "GPUs: chief 0 has A, worker 0 has B");
}

TEST(AssignGpus, LeavesNoGpuIdleAndKeepsNeighboursTogether) {
  EXPECT_THAT(Shown(AssignGpus(Gpus(4), Tasks({.workers = 1}), {})), ElementsAre("A,B", "C,D"));
  EXPECT_THAT(Shown(AssignGpus(Gpus(3), Tasks({.workers = 1}), {})), ElementsAre("A,B", "C"));
  EXPECT_THAT(Shown(AssignGpus(Gpus(4), Tasks({}), {})), ElementsAre("A,B,C,D"));
  EXPECT_THAT(Shown(AssignGpus(Gpus(2), Tasks({}), {.one_device = true})), ElementsAre("A"));
}

TEST(AssignGpus, GivesEachWorkerOfServersOneAndTheChiefNone) {
  const auto tasks = Tasks({.workers = 2, .ps = 1, .evaluator = true});
  EXPECT_THAT(Shown(AssignGpus(Gpus(4), tasks, {.servers = true})),
              ElementsAre("", "A", "B", "", ""));
}

TEST(AssignGpus, TrainsOnTheCpuWhereThereAreFewerGpusThanMembers) {
  const auto plan = AssignGpus(Gpus(1), Tasks({.workers = 1, .evaluator = true}), {});
  EXPECT_THAT(Shown(plan), ElementsAre("", "", ""));
  EXPECT_THAT(plan->note, HasSubstr("1 GPU for 2 members (chief 0, worker 0)"));
  EXPECT_THAT(plan->note, HasSubstr("train on the CPU"));
}

TEST(AssignGpus, RefusesFewerThanTheJobAsksFor) {
  const auto tasks = Tasks({.workers = 1});
  const auto cuda = AssignGpus(Gpus(1), tasks, {.devices = "cuda"});
  EXPECT_EQ(ExitCodeOf(cuda.status()), ExitCode::kConfiguration);
  const auto second = AssignGpus(Gpus(2), tasks, {.devices = "cuda:0,1"});
  EXPECT_THAT(Shown(second), ElementsAre(HasSubstr("which takes 2 of each member, but there are 2 "
                                                   "GPUs for 2 members (chief 0, worker 0)")));
  EXPECT_THAT(Shown(AssignGpus(Gpus(4), tasks, {.devices = "cuda:0,1"})),
              ElementsAre("A,B", "C,D"));
}

TEST(AssignGpus, ChangesNothingWithoutGpusOrForTheCpu) {
  for (const auto& plan :
       {AssignGpus({}, Tasks({.workers = 1, .evaluator = true}), {.devices = "cuda"}),
        AssignGpus(Gpus(4), Tasks({.workers = 1, .evaluator = true}), {.devices = "cpu:2"})}) {
    EXPECT_THAT(Shown(plan), ElementsAre("(as it is)", "(as it is)", "(as it is)"));
    EXPECT_EQ(plan->note, "");
  }
}

TEST(AssignGpus, MakesOneMemberForEachGpu) {
  EXPECT_EQ(WorkersFor(0, {}), 1);  // a chief and a worker on the CPU
  EXPECT_EQ(WorkersFor(1, {}), 0);  // the chief has it
  EXPECT_EQ(WorkersFor(8, {}), 7);
  EXPECT_EQ(WorkersFor(2, {.chief = false}), 2);
  EXPECT_EQ(WorkersFor(2, {.ps = 1}), 2);  // that chief computes nothing
}

const GpuInventory kHost{{{"GPU-11aa"}, {"GPU-12bb"}, {"MIG-77"}, {"MIG-78"}}, 3};

std::vector<std::string> Visible(const std::optional<std::string>& variable,
                                 const GpuInventory& host = kHost) {
  const auto visible = VisibleGpus(host, variable);
  if (visible.ok()) return *visible;
  EXPECT_EQ(ExitCodeOf(visible.status()), ExitCode::kConfiguration);
  return {"refused: " + std::string(visible.status().message())};
}

TEST(VisibleGpus, AreAllThatTheVariableLeaves) {
  EXPECT_THAT(Visible(std::nullopt), ElementsAre("GPU-11aa", "GPU-12bb", "MIG-77", "MIG-78"));
  EXPECT_THAT(Visible("2,0"), ElementsAre("2", "0"));
  EXPECT_THAT(Visible("GPU-12bb, MIG-78"), ElementsAre("GPU-12bb", "MIG-78"));
  EXPECT_THAT(Visible("GPU-12"), ElementsAre("GPU-12bb"));
  EXPECT_THAT(Visible("MIG-GPU-12bb/1/0"), ElementsAre("MIG-GPU-12bb/1/0"));
  for (const char* none : {"", "-1", "none", "NoDevFiles", "-1,0"})
    EXPECT_THAT(Visible(none), IsEmpty()) << none;
  EXPECT_THAT(Visible("1,-1,0"), ElementsAre("1"));
}

TEST(VisibleGpus, AreRefusedByNameWhereTheyAreNotThereOrTwice) {
  EXPECT_THAT(Visible("0,3"), ElementsAre(HasSubstr("there is no GPU 3")));
  EXPECT_THAT(Visible("GPU-99"), ElementsAre(HasSubstr("no GPU of this host is GPU-99")));
  EXPECT_THAT(Visible("GPU-1"), ElementsAre(HasSubstr("more than one GPU of this host is GPU-1")));
  EXPECT_THAT(Visible("1,1"), ElementsAre(HasSubstr("names GPU 1 twice")));
  EXPECT_THAT(Visible("GPU-12,GPU-12bb"), ElementsAre(HasSubstr("names GPU GPU-12bb twice")));
}

TEST(VisibleGpus, AreTakenByNameWhereOnlyTheirNumberIsKnown) {
  const GpuInventory counted{{{"0"}, {"1"}}, 2};
  EXPECT_THAT(Visible("GPU-5,1", counted), ElementsAre("GPU-5", "1"));
}

class ReadGpusHere : public testing::Test {
 protected:
  ~ReadGpusHere() override { unsetenv("FAKE_GPUS"); }
  static absl::StatusOr<GpuInventory> Read(const char* gpus) {
    setenv("FAKE_GPUS", gpus, 1);
    // Each time from the start: a loaded library keeps what it knows.
    std::string copy = std::filesystem::temp_directory_path() / "muster-nvml-XXXXXX";
    const int fd = mkstemp(copy.data());
    close(fd);
    std::filesystem::copy_file(FAKE_NVML, copy, std::filesystem::copy_options::overwrite_existing);
    const auto inventory = launcher::ReadGpusHere(copy.c_str(), "/nowhere");
    std::filesystem::remove(copy);
    return inventory;
  }
};

TEST_F(ReadGpusHere, ListsInstancesInPlaceOfADividedGpu) {
  const auto read = Read("GPU-1 GPU-2=MIG-1,MIG-2 denied");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->physical, 2);
  EXPECT_THAT(Visible(std::nullopt, *read), ElementsAre("GPU-1", "MIG-1", "MIG-2"));
}

TEST_F(ReadGpusHere, SaysWhatIsWrongWithTheDriver) {
  const auto read = Read("init:18");
  EXPECT_EQ(ExitCodeOf(read.status()), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("Driver/library version mismatch"));
  const auto unloaded = Read("init:9");
  ASSERT_TRUE(unloaded.ok()) << unloaded.status();
  EXPECT_THAT(unloaded->gpus, IsEmpty());
}

TEST_F(ReadGpusHere, CountsFoldersWithoutTheDriversLibrary) {
  std::string folder = std::filesystem::temp_directory_path() / "muster-gpus-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  for (const char* gpu : {"/0000:01:00.0", "/0000:02:00.0"})
    std::filesystem::create_directory(folder + gpu);
  const auto counted = launcher::ReadGpusHere("libnowhere.so", folder.c_str());
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(counted.ok()) << counted.status();
  EXPECT_THAT(Visible(std::nullopt, *counted), ElementsAre("0", "1"));
  const auto none = launcher::ReadGpusHere("libnowhere.so", folder.c_str());
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(none->gpus, IsEmpty());
}

}  // namespace
}  // namespace muster::launcher
