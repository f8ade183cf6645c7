#include "deploy/preflight/judgement.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "common/job/job.h"

namespace muster::preflight {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

Facts Task(const std::string& task, const Json& keys = Json::object()) {
  Json job = {{"program", "linear"}, {"global_batch_size", 40}, {"epochs", 1}};
  job.update(keys);
  const absl::StatusOr<Job> parsed = JobFromJson(job);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return {.task = task,
          .host = "node",
          .host_id = "host of " + task,
          .job = JobToJson(*parsed),
          .versions = {{"Muster", "1"}, {"LibTorch", "2.11.0"}},
          .data_address = "10.0.0.1"};
}

const ClockOffset kGoodClock{.seconds = 1e-4, .uncertainty = 2e-4, .round_trip = 4e-4};

std::vector<std::string> Wrong(const std::vector<Check>& checks) {
  std::vector<std::string> lines;
  for (const std::string& line : Lines(checks))
    if (!line.starts_with("ok")) lines.push_back(line);
  return lines;
}

TEST(CompareFactsTest, EqualTasksAreOneLine) {
  const auto checks = CompareFacts(Task("chief:0"), Task("worker:1"), kGoodClock);
  EXPECT_THAT(Lines(checks),
              ElementsAre("ok      worker 1  same job and versions as chief 0; clock +100 us "
                          "(within 200 us), data address 10.0.0.1"));
}

TEST(CompareFactsTest, NamesTheKeyInWhichJobsDiffer) {
  const auto checks =
      CompareFacts(Task("chief:0"), Task("worker:1", {{"checkpoint", {{"keep", 7}}}}), kGoodClock);
  EXPECT_THAT(Wrong(checks),
              ElementsAre(AllOf(HasSubstr("FAILED  job"),
                                HasSubstr("worker 1 has another checkpoint.keep than chief 0: 7, "
                                          "not 3: give all tasks the same job file"))));
  EXPECT_EQ(CodeOf(checks), ExitCode::kConfiguration);
}

TEST(CompareFactsTest, KeysOfTheHostMayDiffer) {
  const Facts other =
      Task("worker:1",
           {{"devices", "cpu:2"}, {"collective", {{"interface", "eth7"}}}, {"folder", "/x"}});
  EXPECT_THAT(Wrong(CompareFacts(Task("chief:0"), other, kGoodClock)), IsEmpty());
}

TEST(CompareFactsTest, NamesTheFileThatDiffers) {
  Facts chief = Task("chief:0"), other = Task("worker:1");
  chief.job["digests"] = {{"data.train.x", "1"}};
  other.job["digests"] = {{"data.train.x", "2"}};
  EXPECT_THAT(Wrong(CompareFacts(chief, other, kGoodClock)),
              ElementsAre(HasSubstr("worker 1 has another file than chief 0 for data.train.x")));
}

TEST(CompareFactsTest, AValueOfAnotherTaskIsCutAndCleaned) {
  Facts other = Task("worker:1");
  other.job["model_dir"] = std::string(500, 'x') + "\n";
  const auto wrong = Wrong(CompareFacts(Task("chief:0"), other, kGoodClock));
  ASSERT_THAT(wrong, SizeIs(1));
  EXPECT_THAT(wrong[0].size(), testing::Lt(300u));
  EXPECT_THAT(wrong[0], HasSubstr("has another model_dir than chief 0"));
}

TEST(CompareFactsTest, OneWithoutAJobFileIsAWarning) {
  Facts other = Task("worker:1");
  other.job = nullptr;
  const auto checks = CompareFacts(Task("chief:0"), other, kGoodClock);
  EXPECT_THAT(Wrong(checks), ElementsAre(HasSubstr("worker 1 has no job file")));
  EXPECT_EQ(CodeOf(checks), ExitCode::kDone);
}

TEST(CompareFactsTest, AnotherLibraryFailsAndAnotherDriverIsAWarning) {
  Facts chief = Task("chief:0"), other = Task("worker:1");
  other.versions["LibTorch"] = "2.10.0";
  EXPECT_THAT(Wrong(CompareFacts(chief, other, kGoodClock)),
              ElementsAre(AllOf(HasSubstr("FAILED  version"),
                                HasSubstr("worker 1 has LibTorch 2.10.0, chief 0 has 2.11.0"))));
  other = Task("worker:1");
  chief.versions["NCCL"] = "2.28.9";
  other.versions["NCCL"] = "2.20.5";
  EXPECT_EQ(CodeOf(CompareFacts(chief, other, kGoodClock)), ExitCode::kDone);
  other = Task("worker:1");
  other.versions["NVIDIA driver"] = "570";
  EXPECT_THAT(Wrong(CompareFacts(chief, other, kGoodClock)), IsEmpty()) << "the chief has no GPU";
  chief.versions["NVIDIA driver"] = "580";
  const auto checks = CompareFacts(chief, other, kGoodClock);
  EXPECT_THAT(Wrong(checks), ElementsAre(HasSubstr("warn    version")));
  EXPECT_EQ(CodeOf(checks), ExitCode::kDone);
}

TEST(CompareFactsTest, NamesAnotherVersionAndWhatToInstall) {
  Facts other = Task("worker:1");
  other.versions["Muster"] = "2";
  const auto checks = CompareFacts(Task("chief:0"), other, kGoodClock);
  EXPECT_THAT(Lines(checks),
              ElementsAre("ok      worker 1  same job as chief 0; clock +100 us (within 200 us), "
                          "data address 10.0.0.1",
                          "FAILED  version   worker 1 has Muster 2, chief 0 has 1: install one "
                          "build of Muster, with one LibTorch, on all hosts"));
  EXPECT_EQ(CodeOf(checks), ExitCode::kConfiguration);
}

TEST(CompareFactsTest, EachVersionThatDiffersIsALine) {
  Facts chief = Task("chief:0"), other = Task("worker:1");
  chief.versions["NCCL"] = "2.28.9";
  chief.versions["NVIDIA driver"] = "580";
  other.versions = {
      {"LibTorch", "2.10.0"}, {"Muster", "2"}, {"NCCL", "2.20.5"}, {"NVIDIA driver", "570"}};
  auto checks = CompareFacts(chief, other, kGoodClock);
  EXPECT_THAT(Wrong(checks),
              ElementsAre(HasSubstr("FAILED  version   worker 1 has LibTorch 2.10.0, chief 0 has "
                                    "2.11.0: install one build"),
                          HasSubstr("FAILED  version   worker 1 has Muster 2, chief 0 has 1: "),
                          "warn    version   worker 1 has NCCL 2.20.5, chief 0 has 2.28.9: install "
                          "one version on all hosts, if GPUs behave differently",
                          HasSubstr("warn    version   worker 1 has NVIDIA driver 570, chief 0 has "
                                    "580: install one version")));
  EXPECT_EQ(CodeOf(checks), ExitCode::kConfiguration);
  other.versions = {{"Muster", "1"}};  // no LibTorch, and no GPU
  checks = CompareFacts(chief, other, kGoodClock);
  EXPECT_THAT(Wrong(checks), IsEmpty());
  EXPECT_THAT(Lines(checks), ElementsAre(HasSubstr("same job and versions as chief 0")));
}

TEST(CompareFactsTest, AShiftedClockIsAWarning) {
  const auto clock = [](double seconds, double uncertainty) {
    return Wrong(CompareFacts(Task("chief:0"), Task("worker:1"),
                              {.seconds = seconds, .uncertainty = uncertainty}));
  };
  EXPECT_THAT(clock(2.5, 0.001),
              ElementsAre(HasSubstr("the clock of worker 1 is +2.5 s (within 1.0 ms) ahead of that "
                                    "of chief 0")));
  EXPECT_THAT(clock(-3600, 0.001), ElementsAre(HasSubstr("behind that of chief 0")));
  EXPECT_THAT(clock(0.4, 0.001), IsEmpty());
  EXPECT_THAT(clock(0.9, 0.6), IsEmpty()) << "the offset may be within the limit";
}

TEST(CompareFactsTest, TellsWhatTheOtherTaskHasFoundAtHome) {
  Facts other = Task("worker:1");
  other.checks = {{.name = "devices", .ok = false, .what = "no GPU"}};
  const auto checks = CompareFacts(Task("chief:0"), other, kGoodClock);
  EXPECT_THAT(Wrong(checks), ElementsAre(HasSubstr("worker 1, devices  no GPU")));
  EXPECT_EQ(CodeOf(checks), ExitCode::kConfiguration);
}

TEST(RoundsTest, MeasureEachPathOnceAndNoHostTwiceAtATime) {
  for (int hosts = 0; hosts < 8; ++hosts) {
    std::vector<Facts> tasks;
    for (int i = 0; i < hosts; ++i) tasks.push_back(Task(fmt::format("worker:{}", i)));
    std::set<std::pair<std::string, std::string>> seen;
    for (const auto& round : Rounds(tasks)) {
      std::set<std::string> busy;
      for (const Path& path : round) {
        EXPECT_TRUE(seen.insert({path.from, path.to}).second);
        EXPECT_TRUE(busy.insert(path.from).second && busy.insert(path.to).second);
      }
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(hosts == 0 ? 0 : hosts * (hosts - 1)));
  }
}

TEST(RoundsTest, OneTaskStandsForItsHost) {
  std::vector<Facts> tasks = {Task("chief:0"), Task("worker:0"), Task("worker:1")};
  tasks[1].host_id = tasks[0].host_id;
  EXPECT_THAT(Rounds(tasks), ElementsAre(ElementsAre(Path{"chief:0", "worker:1"}),
                                         ElementsAre(Path{"worker:1", "chief:0"})));
  tasks.push_back(Task("evaluator:0"));
  EXPECT_THAT(Rounds(tasks), SizeIs(2)) << "an evaluator has no data connections";
  tasks.pop_back();
  tasks[2].data_address = "";
  EXPECT_THAT(Rounds(tasks), IsEmpty()) << "nowhere to measure to";
}

// All paths between `hosts` workers, each as fast as the others.
std::vector<PathFacts> Network(int hosts) {
  std::vector<PathFacts> paths;
  for (int a = 0; a < hosts; ++a)
    for (int b = 0; b < hosts; ++b)
      if (a != b)
        paths.push_back({.from = fmt::format("worker:{}", a),
                         .to = fmt::format("worker:{}", b),
                         .own_mtu = 1500,
                         .mtu = 1500,
                         .reported_mtu = 1500,
                         .bits_per_second = 10e9,
                         .round_trip = 1e-4});
  return paths;
}

PathFacts* Find(std::vector<PathFacts>& paths, int from, int to) {
  for (PathFacts& path : paths)
    if (path.from == fmt::format("worker:{}", from) && path.to == fmt::format("worker:{}", to))
      return &path;
  return nullptr;
}

TEST(JudgePathsTest, APairIsOneLine) {
  EXPECT_THAT(Lines(JudgePaths(Network(2))),
              ElementsAre("ok      worker 0, worker 1  MTU 1500 and 1500, 10 and 10 Gbit/s, round "
                          "trip 100 us"));
  EXPECT_THAT(JudgePaths({}), IsEmpty());
}

TEST(JudgePathsTest, NamesASlowLink) {
  auto paths = Network(4);
  Find(paths, 2, 3)->bits_per_second = 1e9;
  const auto checks = JudgePaths(paths);
  EXPECT_THAT(checks, SizeIs(6));
  EXPECT_THAT(Wrong(checks),
              ElementsAre(AllOf(HasSubstr("warn    worker 2, worker 3"),
                                HasSubstr("slow from worker 2 to worker 3: 10 percent of the 10 "
                                          "Gbit/s of other pairs"))));
  EXPECT_EQ(CodeOf(checks), ExitCode::kDone);
}

TEST(JudgePathsTest, NamesASlowHostOfThree) {
  auto paths = Network(3);
  for (int other : {0, 1}) {
    Find(paths, 2, other)->bits_per_second = 1e9;
    Find(paths, other, 2)->bits_per_second = 1e9;
  }
  EXPECT_THAT(Wrong(JudgePaths(paths)),
              ElementsAre(HasSubstr("worker 0, worker 2"), HasSubstr("worker 1, worker 2")));
}

TEST(JudgePathsTest, APathThatSwallowsLongPacketsFails) {
  auto paths = Network(2);
  Find(paths, 0, 1)->mtu = 1400;
  const auto checks = JudgePaths(paths);
  EXPECT_THAT(Wrong(checks), ElementsAre(AllOf(HasSubstr("FAILED"),
                                               HasSubstr("packets of more than 1400 bytes do "
                                                         "not pass from worker 0 to worker 1"),
                                               HasSubstr("no router reports this to the sender"))));
  EXPECT_EQ(CodeOf(checks), ExitCode::kConfiguration);
}

TEST(JudgePathsTest, APathWhoseRoutersSayItsMtuIsAWarning) {
  auto paths = Network(2);
  Find(paths, 0, 1)->mtu = Find(paths, 0, 1)->reported_mtu = 1400;
  EXPECT_THAT(Wrong(JudgePaths(paths)),
              ElementsAre(HasSubstr("routers report this to the sender")));
  EXPECT_EQ(CodeOf(JudgePaths(paths)), ExitCode::kDone);
}

TEST(JudgePathsTest, InterfacesWithDifferentMtusAreAWarning) {
  auto paths = Network(2);
  Find(paths, 1, 0)->own_mtu = Find(paths, 1, 0)->mtu = 9000;
  EXPECT_THAT(
      Wrong(JudgePaths(paths)),
      ElementsAre(HasSubstr("the interface of worker 0 has MTU 1500, that of worker 1 9000")));
}

TEST(JudgePathsTest, ADataAddressThatCannotBeReachedFails) {
  auto paths = Network(2);
  *Find(paths, 0, 1) = {.from = "worker:0", .to = "worker:1", .problem = "no route to host"};
  const auto checks = JudgePaths(paths);
  EXPECT_THAT(
      Wrong(checks),
      ElementsAre(HasSubstr("worker 0 cannot reach the data address of worker 1: no route")));
  EXPECT_EQ(CodeOf(checks), ExitCode::kRetryable);
}

TEST(JudgePathsTest, OfManyPairsOnlyThoseWithProblemsAreListed) {
  auto paths = Network(16);
  Find(paths, 3, 5)->bits_per_second = 1e9;
  EXPECT_THAT(Lines(JudgePaths(paths)),
              ElementsAre(HasSubstr("warn    worker 3, worker 5"),
                          "ok      all pairs           120 measured, usually 10 Gbit/s; 1 with a "
                          "problem"));
}

}  // namespace
}  // namespace muster::preflight
