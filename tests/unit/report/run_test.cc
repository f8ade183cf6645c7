#include "deploy/report/run.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/unit/report/runs.h"

namespace muster::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ReadModelDirTest : public RunsTest {
 protected:
  std::string Refusal(const std::string& path) {
    const auto run = ReadModelDir(path);
    if (run.ok()) return "";
    EXPECT_EQ(ExitCodeOf(run.status()), ExitCode::kConfiguration);
    return std::string(Message(run.status()));
  }
};

TEST_F(ReadModelDirTest, ReadsAFinishedRun) {
  WriteRun("a");
  WriteCurve("a/system/worker-0", "cpu_cores", {{1, 1.5}});
  WriteCurve("a/checkpoints/step-1", "no", {{1, 1}});
  const auto run = ReadModelDir(top_ + "/a");
  ASSERT_TRUE(run.ok()) << Message(run.status());
  EXPECT_THAT(run->problems, IsEmpty());
  EXPECT_EQ(run->job["program"], "linear");
  EXPECT_EQ(run->recovery["losses"], 1);
  ASSERT_EQ(run->folders.size(), 2u);
  EXPECT_EQ(run->folders.at("system/worker-0").scalars.count("cpu_cores"), 1u);
  EXPECT_GT(run->began, 1.7e9);
  EXPECT_NEAR(SecondsOf(*run), 90, 2);
}

TEST_F(ReadModelDirTest, RefusesWhatIsNoRun) {
  EXPECT_THAT(Refusal(top_ + "/none"), HasSubstr("is not there"));
  Write("file", "");
  EXPECT_THAT(Refusal(top_ + "/file"), HasSubstr("is a file"));
  Write("other/notes.txt", "");
  EXPECT_THAT(Refusal(top_ + "/other"),
              HasSubstr("is not a run: it has neither job.json nor event"));
  WriteRun("runs/a");
  WriteRun("runs/b");
  EXPECT_THAT(Refusal(top_ + "/runs"), HasSubstr("is not a run, but has 2 of them: name"));
}

TEST_F(ReadModelDirTest, ARunWithoutResultIsPartial) {
  Write("a/recovery.json", R"({"losses": 2})");
  WriteCurve("a/train", "loss", {{1, 4}, {2, 2}});
  const auto run = ReadModelDir(top_ + "/a");
  ASSERT_TRUE(run.ok());
  EXPECT_THAT(run->problems, ElementsAre(HasSubstr("it has no result.json")));
  EXPECT_TRUE(run->result.is_null());
  EXPECT_EQ(run->recovery["losses"], 2);
}

TEST_F(ReadModelDirTest, DamageIsAProblemAndNoError) {
  WriteRun("a");
  Write("a/result.json", R"({"status": "compl)");
  Write("a/job.json", "[1, 2]");
  Write("a/flight/0001-000001/chief-0.json", "{");
  Write("a/train/events.out.tfevents.9999999999.host.1", "no events");
  Write("a/test/events.out.tfevents.1.host.1", std::string(100, '\xff'));
  ASSERT_EQ(mkfifo((top_ + "/a/recovery.json").c_str(), 0600), 0);
  const auto run = ReadModelDir(top_ + "/a");
  ASSERT_TRUE(run.ok());
  EXPECT_THAT(run->problems,
              ElementsAre(HasSubstr("job.json is damaged"), HasSubstr("result.json is damaged"),
                          HasSubstr("test/events.out.tfevents.1.host.1: the last 100 bytes"),
                          HasSubstr("train/events.out.tfevents.9999999999.host.1: the last 9"),
                          HasSubstr("flight/0001-000001/chief-0.json is damaged")));
  EXPECT_EQ(run->folders.at("train").scalars.at("loss").size(), 3u);
}

TEST_F(ReadModelDirTest, TimeCountsEarlierStarts) {
  report::Run run{.last = 1000};
  run.folders["train"].files = {{"f1", "host.1", 100, 150}, {"f2", "host.2", 905, 1000}};
  run.folders["validation"].files = {{"f3", "host.1", 140, 160}};
  run.folders["system/a"].files = {{"f4", "host.1", 0.5, 800}};
  EXPECT_EQ(SecondsOf(run), 50 + 10 + 95);  // Nothing but events.
  run.result = {{"wall_seconds", 96.0}};
  EXPECT_EQ(SecondsOf(run), 50 + 10 + 96);
}

TEST_F(ReadModelDirTest, NamesAreShortAndUnique) {
  const auto names = [&](const std::vector<std::string>& paths) {
    std::vector<report::Run> runs;
    for (const std::string& path : paths) runs.push_back({.path = top_ + "/" + path});
    const absl::Status status = NameRuns(&runs);
    std::vector<std::string> named;
    if (!status.ok()) return std::vector{std::string(Message(status))};
    for (const report::Run& run : runs) named.push_back(run.name);
    return named;
  };
  EXPECT_THAT(names({"x/a", "x/b"}), ElementsAre("a", "b"));
  EXPECT_THAT(names({"x/a", "y/a", "y/b/"}), ElementsAre("x/a", "y/a", "b"));
  EXPECT_THAT(names({"x/a", "x/../x/a"}), ElementsAre(HasSubstr("are the same folder")));
}

}  // namespace
}  // namespace muster::report
