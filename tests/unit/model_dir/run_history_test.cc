#include "chief/model_dir/run_history.h"

#include <gmock/gmock.h>

namespace muster::chief {
namespace {

using std::chrono::milliseconds;

class RunHistoryTest : public ::testing::Test {
 protected:
  MonotonicTime At(int64_t ms) const { return start_ + milliseconds(ms); }
  const MonotonicTime start_ = Clock::now();
};

TEST_F(RunHistoryTest, ARunWithoutLossesHasNone) {
  RunHistory history;
  history.OnStart(0, At(0));
  for (int64_t step = 1; step < 5; ++step) EXPECT_FALSE(history.OnStep(step, At(10 * step)));
  EXPECT_EQ(history.ToJson(), Json({{"restarts", 0},
                                    {"generations", 1},
                                    {"losses", 0},
                                    {"seconds_lost", 0.0},
                                    {"last_losses", Json::array()}}));
}

TEST_F(RunHistoryTest, ALossLastsFromTheLastProgressToTheNextStep) {
  RunHistory history;
  history.OnStart(0, At(0));
  history.OnStep(1, At(1000));
  history.OnProgress(At(2000));  // of a validation pass
  history.OnLost("worker:1", "its port refuses", At(2500));
  history.OnLost("worker:2", "", At(2600));  // at the same time
  EXPECT_FALSE(history.OnStep(2, At(2700))) << "the others have yet to hear of it";
  history.OnStart(2, At(4000));
  EXPECT_TRUE(history.OnStep(3, At(5000)));
  EXPECT_FALSE(history.OnStep(4, At(6000)));
  const Json written = history.ToJson();
  EXPECT_EQ(written["generations"], 2);
  EXPECT_EQ(written["losses"], 1);
  EXPECT_DOUBLE_EQ(written["seconds_lost"], 3);
  EXPECT_EQ(written["last_losses"][0],
            Json({{"step", 2},
                  {"seconds", 3.0},
                  {"cause", "worker:1 was lost: its port refuses; worker:2 was lost"}}));
}

TEST_F(RunHistoryTest, AGenerationWithoutALostMemberIsRecordedToo) {
  RunHistory history;
  history.OnStart(0, At(0));
  history.OnStep(1, At(100));
  history.OnStart(1, At(300));
  history.OnStep(2, At(400));
  EXPECT_EQ(history.ToJson()["losses"], 1);
  EXPECT_EQ(history.ToJson()["last_losses"][0]["cause"], "the members formed another generation");
}

// The next chief continues the history that a killed chief had written.
TEST_F(RunHistoryTest, TheNextChiefContinuesIt) {
  RunHistory first;
  first.OnStart(0, At(0));
  first.OnStep(1, At(100));
  first.OnLost("worker:1", "", At(100));
  first.OnStart(1, At(1000));
  first.OnStep(2, At(1100));
  RunHistory second;
  second.Continue(first.ToJson(), /*killed=*/true, 2.5, At(10000));
  second.OnStart(2, At(10500));
  second.OnStep(3, At(11000));
  Json written = second.ToJson();
  EXPECT_EQ(written["restarts"], 1);
  EXPECT_EQ(written["generations"], 3);
  EXPECT_EQ(written["losses"], 2);
  EXPECT_DOUBLE_EQ(written["seconds_lost"], 1 + 3.5);
  EXPECT_EQ(written["last_losses"][1]["cause"], "the chief was lost");
  EXPECT_EQ(written["last_losses"][1]["step"], 2);
  // A stop is no loss.
  RunHistory third;
  third.Continue(written, /*killed=*/false, 1000, At(0));
  third.OnStart(3, At(10));
  third.OnStep(4, At(20));
  EXPECT_EQ(third.ToJson()["restarts"], 2);
  EXPECT_EQ(third.ToJson()["losses"], 2);
}

TEST_F(RunHistoryTest, ALossThatEndsTheJobIsRecorded) {
  RunHistory history;
  history.OnStart(0, At(0));
  history.OnStep(7, At(1000));
  history.OnLost("worker:1", "its port refuses", At(1500));
  history.OnEnd(At(4000));
  history.OnEnd(At(9000));  // there is one end
  const Json written = history.ToJson();
  EXPECT_EQ(written["losses"], 1);
  EXPECT_DOUBLE_EQ(written["seconds_lost"], 3);
  EXPECT_EQ(
      written["last_losses"][0],
      Json({{"step", 7}, {"seconds", 3.0}, {"cause", "worker:1 was lost: its port refuses"}}));
}

TEST_F(RunHistoryTest, AnEndWithoutALossIsNone) {
  RunHistory history;
  history.OnStart(0, At(0));
  history.OnStep(7, At(1000));
  history.OnEnd(At(2000));
  EXPECT_EQ(history.ToJson()["losses"], 0);
}

TEST_F(RunHistoryTest, WhatIsNoHistoryCountsAsNone) {
  for (const Json& damaged :
       {Json(), Json(3), Json({{"restarts", "many"}}), Json({{"restarts", 4}})}) {
    RunHistory history;
    history.Continue(damaged, false, -1, At(0));
    EXPECT_EQ(history.ToJson()["restarts"], 1) << damaged;
    EXPECT_EQ(history.ToJson()["losses"], 0) << damaged;
  }
}

TEST_F(RunHistoryTest, IndependentMembersComeAndGo) {
  RunHistory history(/*independent=*/true);
  history.OnStart(0, At(0));
  history.OnStep(7, At(100));
  history.OnLost("worker:1", "killed", At(150));
  history.OnLost("ps:0", "killed", At(160));
  EXPECT_FALSE(history.OnStep(8, At(200)));
  EXPECT_EQ(history.ToJson()["losses"], 2);
  EXPECT_EQ(history.ToJson()["last_losses"][0]["step"], 7);
}

TEST_F(RunHistoryTest, KeepsTheNewestLosses) {
  RunHistory history;
  history.OnStart(0, At(0));
  for (int64_t i = 1; i <= 50; ++i) {
    history.OnLost("worker:1", "", At(100 * i));
    history.OnStart(i, At(100 * i + 10));
    history.OnStep(i + 1, At(100 * i + 20));
  }
  const Json written = history.ToJson();
  EXPECT_EQ(written["losses"], 50);
  ASSERT_EQ(written["last_losses"].size(), 20u);
  EXPECT_EQ(written["last_losses"].back()["step"], 50);
}

}  // namespace
}  // namespace muster::chief
