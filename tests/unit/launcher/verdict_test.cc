#include "deploy/launcher/verdict.h"

#include <gmock/gmock.h>

#include <csignal>

namespace muster::launcher {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

class Verdict : public testing::Test {
 protected:
  Verdict() {
    for (const PlannedTask& task : PlanCluster({.workers = 2, .evaluator = true}, {1, 2, 3, 4})) {
      state_.tasks.push_back({task});
    }
  }
  void End(int task, ExitReport report, int at) {
    TaskState& state = state_.tasks[task];
    state.ended = true;
    state.report = report;
    state.ended_at = start_ + seconds(at);
  }
  LaunchDecision At(int second) const { return Decide(start_ + seconds(second), state_, options_); }

  static constexpr int kChief = 0, kWorker0 = 1, kWorker1 = 2, kEvaluator = 3;
  static constexpr ExitReport kKilled = {128 + SIGKILL, SIGKILL};
  const MonotonicTime start_ = MonotonicTime(seconds(1000));
  LaunchOptions options_;  // 10 s and 30 s
  LaunchState state_;
};

TEST_F(Verdict, WaitsWithoutALimitWhileAllIsWell) {
  EXPECT_EQ(At(0).action, LaunchAction::kWait);
  EXPECT_FALSE(At(0).until.has_value());
  End(kWorker0, {0}, 1);
  End(kWorker1, {143}, 2);
  EXPECT_EQ(At(100000).action, LaunchAction::kWait);
  EXPECT_FALSE(At(3).until.has_value());
}

TEST_F(Verdict, IsTheChiefsExitCode) {
  End(kWorker1, kKilled, 1);
  End(kWorker0, {138}, 3);
  End(kChief, {138}, 3);
  EXPECT_EQ(VerdictOf(state_).code, 138);
  EXPECT_THAT(VerdictOf(state_).reason, HasSubstr("chief 0 exited with code 138"));
  state_.tasks[kChief].report = {0};
  EXPECT_EQ(VerdictOf(state_).code, 0);
}

TEST_F(Verdict, ATaskThatWasLostWithItsHostIsStartedAgain) {
  End(kWorker1, {138, 0, "gpu2"}, 1);
  EXPECT_FALSE(Restartable(state_, state_.tasks[kWorker1], options_));
  options_.restart = RestartPolicy::kOnFailure;
  EXPECT_TRUE(Restartable(state_, state_.tasks[kWorker1], options_));
  EXPECT_EQ(At(1).action, LaunchAction::kRestart);
}

TEST_F(Verdict, IsTheFirstFailuresWhenTheChiefWasKilled) {
  End(kChief, kKilled, 5);
  End(kWorker0, {138}, 6);
  End(kWorker1, {138}, 6);
  EXPECT_EQ(VerdictOf(state_).code, 137);
  End(kWorker1, {1}, 4);
  EXPECT_EQ(VerdictOf(state_).code, 1);
  EXPECT_THAT(VerdictOf(state_).reason, HasSubstr("worker 1 exited with code 1"));
}

TEST_F(Verdict, IsNeverAnEvaluators) {
  End(kEvaluator, {1, 0}, 1);
  EXPECT_FALSE(At(2).until.has_value());
  End(kChief, kKilled, 2);
  EXPECT_EQ(VerdictOf(state_).code, 137);
}

TEST_F(Verdict, AJobGoesOnWithoutAnEvaluatorOnlyWhereItGoesOn) {
  const auto goes_on = [this] { return GoesOnWithout(state_, state_.tasks[kEvaluator]); };
  for (const auto& [report, own] : {std::pair<ExitReport, bool>{kKilled, true},
                                    {{138}, true},
                                    {{2}, true},
                                    {{1}, false},  // the job's, whose members end as well
                                    {{3}, false}}) {
    End(kEvaluator, report, 5);
    EXPECT_EQ(goes_on(), own) << report.code;
  }
  End(kEvaluator, {138}, 5);
  End(kWorker0, {0}, 4);  // it waits for the evaluator
  EXPECT_TRUE(goes_on());
  End(kWorker1, kKilled, 4);
  EXPECT_FALSE(goes_on()) << "the whole job ends with 138";
  End(kWorker1, {0}, 4);
  End(kChief, {0}, 5);
  EXPECT_FALSE(goes_on());
}

TEST_F(Verdict, GivesTheOthersATimeToEnd) {
  End(kChief, {0}, 100);
  const LaunchDecision waiting = At(105);
  EXPECT_EQ(waiting.action, LaunchAction::kWait);
  EXPECT_EQ(waiting.until, start_ + seconds(110));
  const LaunchDecision over = At(110);
  EXPECT_EQ(over.action, LaunchAction::kKill);
  EXPECT_THAT(over.reason, HasSubstr("worker 0, worker 1, evaluator 0"));
  EXPECT_THAT(over.reason, HasSubstr("10 s after chief 0 ended"));
}

// They may be trying to tell the chief of what it has found itself.
TEST_F(Verdict, AsksTheOthersToEndAfterAChiefThatFailedForGood) {
  End(kWorker0, {2}, 1);
  End(kChief, {2}, 3);
  EXPECT_EQ(At(3).action, LaunchAction::kWait);
  EXPECT_EQ(At(3).until, start_ + seconds(4));
  EXPECT_EQ(At(4).action, LaunchAction::kAskToEnd);
  state_.asked_to_end = true;
  EXPECT_EQ(At(4).action, LaunchAction::kWait);
  EXPECT_EQ(At(4).until, start_ + seconds(13));
  EXPECT_EQ(VerdictOf(state_).code, 2);
  state_.asked_to_end = false;
  for (const ExitReport& report : {ExitReport{0}, ExitReport{138}, ExitReport{143}, kKilled}) {
    state_.tasks[kChief].report = report;
    EXPECT_EQ(At(4).action, LaunchAction::kWait) << report.code;
  }
}

TEST_F(Verdict, StopsAClusterWhoseChiefReachesNone) {
  End(kWorker1, {139, SIGSEGV}, 10);
  EXPECT_EQ(At(39).until, start_ + seconds(40));
  const LaunchDecision silent = At(40);
  EXPECT_EQ(silent.action, LaunchAction::kTerminate);
  EXPECT_THAT(silent.reason, HasSubstr("worker 1 was killed by SIGSEGV"));
  state_.terminated_at = start_ + seconds(40);
  EXPECT_EQ(At(41).until, start_ + seconds(50));
  EXPECT_EQ(At(50).action, LaunchAction::kKill);
  // The code of a task after it was asked to stop is not the cause.
  End(kChief, {143}, 42);
  EXPECT_EQ(VerdictOf(state_).code, 139);
}

TEST_F(Verdict, KillsAtTheSecondRequest) {
  state_.stop_requests = 1;
  EXPECT_EQ(At(5).action, LaunchAction::kWait);
  state_.stop_requests = 2;
  EXPECT_EQ(At(5).action, LaunchAction::kKill);
  state_.killed_at = start_ + seconds(5);
  EXPECT_EQ(At(6).until, start_ + seconds(10));
  for (int task : {kWorker0, kWorker1, kEvaluator}) End(task, kKilled, 6);
  const LaunchDecision stuck = At(10);
  EXPECT_EQ(stuck.action, LaunchAction::kDone);
  EXPECT_THAT(stuck.reason, HasSubstr("cannot end chief 0"));
  EXPECT_EQ(VerdictOf(state_).code, 137);
  End(kChief, kKilled, 6);
  EXPECT_EQ(At(7).action, LaunchAction::kDone);
  EXPECT_EQ(VerdictOf(state_).code, 137);
}

TEST_F(Verdict, OfAChiefThatStoppedInTimeStandsWhenTheRestIsKilled) {
  End(kChief, {143}, 3);
  state_.stop_requests = 2;
  state_.killed_at = start_ + seconds(5);
  for (int task : {kWorker0, kWorker1, kEvaluator}) End(task, kKilled, 6);
  EXPECT_EQ(VerdictOf(state_).code, 143);
}

TEST_F(Verdict, TellsPreemptionFromADeathBySigterm) {
  End(kChief, {143}, 1);
  EXPECT_TRUE(VerdictOf(state_).preempted);
  state_.tasks[kChief].report = {143, SIGTERM};
  EXPECT_EQ(VerdictOf(state_).code, 143);
  EXPECT_FALSE(VerdictOf(state_).preempted);
}

TEST(Describe, NamesCodesAndSignals) {
  EXPECT_EQ(Describe({0, 0}), "exited with code 0 (done)");
  EXPECT_EQ(Describe({2, 0}), "exited with code 2 (configuration)");
  EXPECT_EQ(Describe({7, 0}), "exited with code 7");
  EXPECT_EQ(Describe({137, SIGKILL}), "was killed by SIGKILL");
  EXPECT_EQ(Describe({138, 0, "gpu2"}), "was lost with the connection to gpu2");
}

TEST_F(Verdict, RestartsWhatDiedAndNothingElse) {
  options_.restart = RestartPolicy::kOnFailure;
  End(kWorker1, kKilled, 1);
  EXPECT_EQ(At(1).action, LaunchAction::kRestart);
  EXPECT_EQ(At(1).task, kWorker1);
  for (const ExitReport& report : {ExitReport{138}, ExitReport{137}}) {
    End(kWorker1, report, 1);
    EXPECT_EQ(At(1).action, LaunchAction::kRestart) << report.code;
  }
  for (const ExitReport& report : {ExitReport{0}, ExitReport{1}, ExitReport{2}, ExitReport{3},
                                   ExitReport{127}, ExitReport{143}}) {
    End(kWorker1, report, 1);
    EXPECT_EQ(At(1).action, LaunchAction::kWait) << report.code;
  }
  options_.restart = RestartPolicy::kAlways;
  EXPECT_EQ(At(1).action, LaunchAction::kRestart);  // 143
  options_.restart = RestartPolicy::kNever;
  EXPECT_EQ(At(1).action, LaunchAction::kWait);
}

TEST_F(Verdict, RestartsTheChiefBeforeItTakesItsEndForTheVerdict) {
  options_.restart = RestartPolicy::kOnFailure;
  End(kChief, kKilled, 1);
  EXPECT_EQ(At(1).action, LaunchAction::kRestart);
  EXPECT_EQ(At(1).task, kChief);
  // Its verdict is final: tasks that end with it are not started again.
  End(kChief, {1}, 1);
  End(kWorker0, {138}, 2);
  state_.asked_to_end = true;
  EXPECT_EQ(At(2).action, LaunchAction::kWait);
}

TEST_F(Verdict, RestartsOnlySoOftenAndEachTimeLater) {
  options_.restart = RestartPolicy::kOnFailure;
  options_.max_restarts = 2;
  End(kWorker0, kKilled, 1);
  state_.tasks[kWorker0].restarts = 1;
  EXPECT_EQ(At(1).action, LaunchAction::kWait);
  EXPECT_EQ(At(1).until, start_ + seconds(2));
  EXPECT_EQ(At(2).action, LaunchAction::kRestart);
  End(kWorker1, kKilled, 1);  // its first time: at once
  EXPECT_EQ(At(1).task, kWorker1);
  state_.tasks[kWorker0].restarts = 2;
  End(kWorker1, {0}, 1);
  EXPECT_EQ(At(100).action, LaunchAction::kTerminate);
}

TEST_F(Verdict, RestartsNothingAfterItsOwnSignal) {
  options_.restart = RestartPolicy::kAlways;
  End(kWorker0, kKilled, 1);
  state_.stop_requests = 1;
  EXPECT_NE(At(1).action, LaunchAction::kRestart);
  state_.stop_requests = 0;
  state_.terminated_at = start_;
  EXPECT_NE(At(1).action, LaunchAction::kRestart);
}

TEST_F(Verdict, KillsWhatTheJobHasLostBeforeItStartsItAgain) {
  options_.restart = RestartPolicy::kOnFailure;
  state_.tasks[kWorker1].pid = 70;
  const SupervisorLine lost = {false, {"worker:1", 70, "no heartbeat for 10.0 s", seconds(2)}};
  Note(start_, lost, &state_);
  EXPECT_EQ(At(1).action, LaunchAction::kWait);
  EXPECT_EQ(At(1).until, start_ + seconds(2));
  EXPECT_EQ(At(2).action, LaunchAction::kKillTask);
  EXPECT_EQ(At(2).task, kWorker1);
  EXPECT_THAT(At(2).reason, HasSubstr("worker 1 (pid 70)"));
  EXPECT_THAT(At(2).reason, HasSubstr("no heartbeat for 10.0 s"));
  // It was said again later: the first word counts.
  Note(start_ + seconds(1), lost, &state_);
  EXPECT_EQ(At(2).action, LaunchAction::kKillTask);
  // Another task's restart that is not due yet is no reason to wait longer.
  End(kWorker0, kKilled, 0);
  state_.tasks[kWorker0].restarts = 5;
  EXPECT_EQ(At(1).until, start_ + seconds(2));
  EXPECT_EQ(At(2).task, kWorker1);
}

TEST_F(Verdict, SparesAProcessThatTheJobFoundAgain) {
  options_.restart = RestartPolicy::kOnFailure;
  state_.tasks[kChief].pid = 70;
  Note(start_, {false, {"chief:0", 70, "no answer", seconds(2)}}, &state_);
  Note(start_ + seconds(1), {true, {"chief:0", 0, "", {}}}, &state_);
  EXPECT_FALSE(At(3).until.has_value());
}

TEST_F(Verdict, TakesNoWordAboutAnEarlierProcess) {
  options_.restart = RestartPolicy::kOnFailure;
  state_.tasks[kWorker1].pid = 71;
  Note(start_, {false, {"worker:1", 70, "gone", {}}}, &state_);
  EXPECT_EQ(At(1).action, LaunchAction::kWait);
}

TEST_F(Verdict, KillsNothingLostThatItWouldNotStartAgain) {
  options_.max_restarts = 1;
  state_.tasks[kWorker1].pid = 70;
  Note(start_, {false, {"worker:1", 70, "frozen", {}}}, &state_);
  EXPECT_EQ(At(1).action, LaunchAction::kWait) << "it may wake up";
  options_.restart = RestartPolicy::kOnFailure;
  EXPECT_EQ(At(1).action, LaunchAction::kKillTask);
  state_.tasks[kWorker1].restarts = 1;
  EXPECT_EQ(At(1).action, LaunchAction::kWait);
  state_.tasks[kWorker1].restarts = 0;
  state_.stop_requests = 1;
  EXPECT_EQ(At(1).action, LaunchAction::kWait);
}

TEST_F(Verdict, AnElasticJobGoesOnWithoutAWorker) {
  options_.elastic = true;
  End(kWorker1, kKilled, 1);
  EXPECT_EQ(At(1000).action, LaunchAction::kWait);
  EXPECT_FALSE(At(2).until.has_value());
  End(kChief, {0}, 1000);
  EXPECT_EQ(VerdictOf(state_, options_).code, 0);
  // The chief's own death is its own.
  End(kChief, {139, SIGSEGV}, 1000);
  EXPECT_THAT(VerdictOf(state_, options_).reason, HasSubstr("chief 0 was killed by SIGSEGV"));
}

TEST_F(Verdict, AParameterServerJobGoesOnWithoutAWorkerOrAPs) {
  options_.independent = true;
  state_.tasks.push_back({{TaskType::kPs, 0, "127.0.0.1:9"}});
  state_.tasks.push_back({{TaskType::kPs, 1, "127.0.0.1:10"}});
  const size_t ps = state_.tasks.size() - 1;
  End(kWorker1, kKilled, 1);
  End(ps, {static_cast<int>(ExitCode::kRetryable)}, 2);
  EXPECT_EQ(At(1000).action, LaunchAction::kWait);
  EXPECT_FALSE(At(3).until.has_value());
  // Its own failure is another matter.
  End(ps - 1, {static_cast<int>(ExitCode::kConfiguration)}, 4);
  EXPECT_EQ(At(5).until, start_ + seconds(34));
}

TEST_F(Verdict, AnElasticJobEndsWithAWorkersOwnFailure) {
  options_.elastic = true;
  End(kWorker1, {1}, 1);
  EXPECT_EQ(At(2).until, start_ + seconds(31));
  EXPECT_EQ(At(31).action, LaunchAction::kTerminate);
}

}  // namespace
}  // namespace muster::launcher
