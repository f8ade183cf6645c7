#include "chief/parameter_server/director/director_rules.h"

#include <gtest/gtest.h>

#include <functional>

namespace muster::chief {
namespace {

using Action = DirectorAction;
using Best = DirectorSituation::Best;
using Pass = DirectorSituation::Pass;

DirectorSituation Training() {
  DirectorSituation now;
  now.phase = DirectorPhase::kTraining;
  now.checkpoints = true;
  return now;
}

DirectorSituation Quiet() {
  DirectorSituation now = Training();
  now.quiet = true;
  return now;
}

DirectorSituation Finished() {
  DirectorSituation now = Quiet();
  now.finished = true;
  return now;
}

Action Next(const DirectorSituation& now) { return Decide(now).action; }

TEST(DirectorRules, WithNothingDueItWaits) {
  EXPECT_EQ(Next(Training()), Action::kWait);
  EXPECT_EQ(Next(Quiet()), Action::kWait);
}

TEST(DirectorRules, ACutWaitsUntilNothingIsOut) {
  DirectorSituation now = Training();
  now.checkpoint_wanted = true;
  EXPECT_EQ(Next(now), Action::kWait);
  EXPECT_TRUE(Decide(now).waits_to_cut);
  now.quiet = true;
  EXPECT_EQ(Next(now), Action::kCut);
  EXPECT_TRUE(Decide(now).checkpoint);
  now.cutting = true;
  EXPECT_EQ(Next(now), Action::kWait) << "for the one before";
}

TEST(DirectorRules, TheEndIsSavedOnce) {
  DirectorSituation now = Finished();
  EXPECT_EQ(Next(now), Action::kCut);
  EXPECT_TRUE(Decide(now).checkpoint);
  now.saved = now.cutting = true;
  EXPECT_EQ(Next(now), Action::kWait);
  now.cutting = false;
  EXPECT_EQ(Next(now), Action::kFinish);
  now.checkpoint_wanted = true;
  EXPECT_EQ(Next(now), Action::kFinish) << "the state is saved already";
  now.saved = now.checkpoints = false;
  EXPECT_EQ(Next(now), Action::kFinish) << "no checkpoints are written";
}

TEST(DirectorRules, NothingEndsBeforeWhatIsDue) {
  const std::vector<std::function<void(DirectorSituation&)>> dues = {
      [](auto& now) { now.validation_due = true; },
      [](auto& now) { now.test_due = true; },
      [](auto& now) { now.histograms_wanted = true; },
      [](auto& now) { now.weights_wanted = true; },
      [](auto& now) { now.best = Best::kWaits; },
      [](auto& now) { now.quiet = false; },
      [](auto& now) { now.callbacks = true; },
      [](auto& now) { now.cutting = true; },
      [](auto& now) { now.saved = false; }};
  for (size_t i = 0; i < dues.size(); ++i) {
    DirectorSituation now = Finished();
    now.saved = true;
    dues[i](now);
    EXPECT_NE(Next(now), Action::kFinish) << i;
  }
}

TEST(DirectorRules, AStopIsSavedBeforeTheJobEnds) {
  DirectorSituation now = Training();
  now.stop = true;
  now.pass = Pass::kRunning;
  now.validation_due = true;
  EXPECT_EQ(Next(now), Action::kCancelPass);
  now.pass = Pass::kNone;
  EXPECT_EQ(Next(now), Action::kWait) << "leases are out";
  now.quiet = true;
  EXPECT_EQ(Next(now), Action::kCut);
  now.saved = now.cutting = true;
  EXPECT_EQ(Next(now), Action::kWait);
  now.cutting = false;
  EXPECT_EQ(Next(now), Action::kStop);
  now.phase = DirectorPhase::kStarting;
  now.callbacks = true;
  EXPECT_EQ(Next(now), Action::kBeginCallbacks) << "what is saved is a state with callbacks";
}

TEST(DirectorRules, PassesComeAfterTheCheckpointOfTheirStep) {
  DirectorSituation now = Quiet();
  now.validation_due = true;
  EXPECT_EQ(Next(now), Action::kStartPass);
  now.checkpoint_wanted = true;
  EXPECT_EQ(Next(now), Action::kCut);
  now.checkpoint_wanted = false;
  now.cutting = true;
  EXPECT_EQ(Next(now), Action::kStartPass) << "while the checkpoint is read";
  now.pass = Pass::kRunning;
  EXPECT_EQ(Next(now), Action::kWait);
  now.pass = Pass::kComplete;
  EXPECT_EQ(Next(now), Action::kWait) << "validation marks the checkpoint of this step";
  now.cutting = false;
  EXPECT_EQ(Next(now), Action::kFinishPass);
}

TEST(DirectorRules, ATestComesAfterWhatCallbacksDoAtTheEnd) {
  DirectorSituation now = Finished();
  now.test_due = now.callbacks = now.weights_known = true;
  EXPECT_EQ(Next(now), Action::kEndTraining);
  now.callbacks_ended = now.saved = true;
  EXPECT_EQ(Next(now), Action::kStartPass);
}

TEST(DirectorRules, CallbacksHearOfAnEpochsEndWithItsWeightsAndMetrics) {
  DirectorSituation now = Quiet();
  now.callbacks = now.epoch_ended = now.epoch_begins = true;
  now.validation_due = true;
  EXPECT_EQ(Next(now), Action::kWantWeights);
  now.weights_wanted = true;
  EXPECT_EQ(Next(now), Action::kCut);
  now.weights_wanted = false;
  now.weights_known = true;
  EXPECT_EQ(Next(now), Action::kStartPass) << "the validation's metrics are the epoch's";
  now.validation_due = false;
  EXPECT_EQ(Next(now), Action::kEndEpoch);
  now.epoch_ended = false;
  EXPECT_EQ(Next(now), Action::kBeginEpoch);
  now.epoch_begins = false;
  EXPECT_EQ(Next(now), Action::kWait);
}

TEST(DirectorRules, CallbacksThatKeptWeightsBeginWithThem) {
  DirectorSituation now = Quiet();
  now.phase = DirectorPhase::kStarting;
  EXPECT_EQ(Next(now), Action::kBeginCallbacks);
  now.callbacks = now.begins_with_weights = true;
  EXPECT_EQ(Next(now), Action::kWantWeights);
  now.weights_wanted = true;
  EXPECT_EQ(Next(now), Action::kCut);
  now.weights_wanted = false;
  now.cutting = true;
  EXPECT_EQ(Next(now), Action::kWait);
  now.cutting = false;
  now.weights_known = true;
  EXPECT_EQ(Next(now), Action::kBeginCallbacks);
}

TEST(DirectorRules, TheBestStateIsAskedForOnceTheDiskIsFree) {
  DirectorSituation now = Quiet();
  now.best = Best::kWaits;
  EXPECT_EQ(Next(now), Action::kWait);
  now.best = Best::kDue;
  EXPECT_EQ(Next(now), Action::kRequestBest);
}

// Tests all situations: no action repeats without end in the same situation.
TEST(DirectorRules, EveryActionIsOneThatTheSituationAllows) {
  for (int bits = 0; bits < 1 << 15; ++bits) {
    int bit = 0;
    const auto flag = [&] { return (bits >> bit++ & 1) != 0; };
    DirectorSituation now = Training();
    now.stop = flag();
    now.finished = flag();
    now.quiet = flag();
    now.cutting = flag();
    now.saved = flag();
    now.checkpoint_wanted = flag();
    now.weights_wanted = flag();
    now.validation_due = flag();
    now.test_due = flag();
    now.callbacks = flag();
    now.callbacks_ended = flag();
    now.epoch_ended = flag();
    now.weights_known = flag();
    now.pass = flag() ? Pass::kRunning : Pass::kNone;
    now.save_requested = flag();
    switch (Next(now)) {
      case Action::kCut:
        EXPECT_TRUE(now.quiet && !now.cutting) << bits;
        break;
      case Action::kStartPass:
        EXPECT_TRUE(now.quiet && !now.stop && now.pass == Pass::kNone) << bits;
        break;
      case Action::kEndEpoch:
      case Action::kEndTraining:
        EXPECT_TRUE(now.quiet && now.weights_known && !now.cutting && !now.stop) << bits;
        break;
      case Action::kStop:
        EXPECT_TRUE(now.stop && now.quiet && now.saved && !now.cutting) << bits;
        break;
      case Action::kFinish:
        EXPECT_TRUE(now.finished && now.quiet && now.saved && !now.stop) << bits;
        break;
      default:
        break;
    }
  }
}

TEST(DirectorGate, StopsAtTheEndOfAnEpochAndAtACheckpoint) {
  GateSituation now;
  now.epoch = 2;
  now.step = 17;
  now.every_steps = 10;
  now.reported = true;
  EXPECT_EQ(DecideGate(now), (LeaseTable::Gate{false, 20, 2}));
  now.step = 20;
  now.before = {false, 20, 2};
  now.steps_to_report = true;
  now.reported = false;
  now.epoch = 3;
  EXPECT_EQ(DecideGate(now), (LeaseTable::Gate{false, 20, 2})) << "until the step is reported";
  now.steps_to_report = false;
  now.reported = true;
  EXPECT_EQ(DecideGate(now), (LeaseTable::Gate{false, 30, 3}));
  now.open_epochs = 3;
  EXPECT_EQ(DecideGate(now).last_epoch, 2) << "callbacks have not begun epoch 3";
}

}  // namespace
}  // namespace muster::chief
