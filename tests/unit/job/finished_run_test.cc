// Tests what result.json and job.json report about a run's end.
#include "common/job/finished_run.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace muster {
namespace {

using ::testing::HasSubstr;

class FinishedRunTest : public testing::Test {
 protected:
  FinishedRunTest() {
    std::string pattern = testing::TempDir() + "/muster-test-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~FinishedRunTest() override { std::filesystem::remove_all(folder_); }

  static Json JobOf(Json keys) {
    keys["program"] = "linear";
    keys["global_batch_size"] = 4;
    return keys;
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
  }
  // Returns what a job with the keys `now` finds after a job with the keys `before` left `result`.
  std::string Find(const Json& now, const Json& before, const Json& result) const {
    Write("job.json", JobOf(before).dump());
    Write("result.json", result.dump());
    return Look(now);
  }
  std::string Look(const Json& now) const {
    absl::StatusOr<Job> job = JobFromJson(JobOf(now));
    EXPECT_TRUE(job.ok()) << job.status();
    job->model_dir = folder_;
    return FinishedRun(*job);
  }

  std::string folder_;
};

Json Completed(int64_t steps, int64_t epochs) {
  return {{"status", "completed"}, {"steps", steps}, {"epochs", epochs}};
}

TEST_F(FinishedRunTest, IsOneOfAsManyEpochsOrSteps) {
  const Json two = {{"epochs", 2}}, seven = {{"max_steps", 7}};
  EXPECT_THAT(Find(two, two, Completed(20, 2)),
              HasSubstr("was trained to its end before: step 20"));
  EXPECT_NE(Find(seven, seven, Completed(7, 1)), "");
  EXPECT_EQ(Find({{"epochs", 3}}, two, Completed(20, 2)), "") << "it continues";
  EXPECT_EQ(Find({{"max_steps", 8}}, seven, Completed(7, 1)), "");
  // The epoch that max_steps ended has more steps.
  EXPECT_EQ(Find({{"epochs", 1}}, seven, Completed(7, 1)), "");
}

TEST_F(FinishedRunTest, MayBeEndedByItsProgram) {
  Json result = Completed(5, 1);
  const Json many = {{"epochs", 100}};
  EXPECT_EQ(Find(many, many, result), "");
  result["finished"] = true;
  EXPECT_NE(Find(many, many, result), "");
  EXPECT_EQ(Find({{"epochs", 101}}, many, result), "");
}

TEST_F(FinishedRunTest, IsNotSeenInWhatIsNoSuchResult) {
  const Json one = {{"epochs", 1}};
  EXPECT_EQ(Look(one), "") << "nothing is there";
  EXPECT_EQ(Find(one, one, {{"status", "preempted"}, {"steps", 9}, {"epochs", 1}}), "");
  EXPECT_EQ(Find(one, one, {{"status", "completed"}}), "");
  EXPECT_EQ(Find(one, one, Json::array({1})), "");
  Json never = one;
  never["restore"] = "never";
  EXPECT_EQ(Find(never, one, Completed(9, 1)), "") << "it begins a new run";
  Write("result.json", "{\"status\": \"compl");
  EXPECT_EQ(Look(one), "");
}

}  // namespace
}  // namespace muster
