#include "chief/model_dir/checkpoints.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

namespace muster::chief {
namespace {

using checkpoint::Snapshot;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CheckpointOptions Every(std::optional<int64_t> steps, std::optional<int64_t> epochs) {
  CheckpointOptions options;
  options.every_steps = steps;
  options.every_epochs = epochs;
  return options;
}

TEST(SaveDue, StepsEpochsOrEveryEpoch) {
  const SaveMoment middle{.step = 6, .epoch = 1};
  const SaveMoment end{.step = 8, .epoch = 1, .epoch_end = true};
  const SaveMoment odd_end{.step = 9, .epoch = 2, .epoch_end = true};
  EXPECT_FALSE(SaveDue(Every({}, {}), middle));
  EXPECT_TRUE(SaveDue(Every({}, {}), end));
  EXPECT_TRUE(SaveDue(Every(3, {}), middle));
  EXPECT_FALSE(SaveDue(Every(3, {}), end));
  EXPECT_TRUE(SaveDue(Every({}, 2), end));
  EXPECT_FALSE(SaveDue(Every({}, 2), odd_end));
  EXPECT_TRUE(SaveDue(Every(3, 2), middle));
  EXPECT_TRUE(SaveDue(Every(3, 2), end));
  EXPECT_TRUE(SaveDue(Every(3, 2), odd_end));
  EXPECT_FALSE(SaveDue(Every(4, 2), odd_end));
}

TEST(SaveDue, TheEndAndAStopAlways) {
  EXPECT_TRUE(SaveDue(Every(100, {}), {.step = 7, .last = true}));
  EXPECT_TRUE(SaveDue(Every(100, {}), {.step = 7, .stopping = true}));
}

TEST(LargerIsBetter, AsTheNameOrTheModeSays) {
  const auto larger = [](const char* best, const char* mode) {
    CheckpointOptions options;
    options.best = best;
    options.best_mode = mode;
    return LargerIsBetter(options);
  };
  EXPECT_FALSE(larger("loss", "auto"));
  EXPECT_FALSE(larger("mean_squared_error", "auto"));
  EXPECT_FALSE(larger("rmse", "auto"));
  EXPECT_FALSE(larger("ema_perplexity", "auto"));
  EXPECT_TRUE(larger("accuracy", "auto"));
  EXPECT_TRUE(larger("kappa", "auto")) << "the name does not tell";
  EXPECT_TRUE(larger("loss", "max"));
  EXPECT_FALSE(larger("accuracy", "min"));
}

// Writes to nowhere, when it is let.
class FakeStore : public checkpoint::Store {
 public:
  absl::StatusOr<std::string> Write(const Snapshot& snapshot) override {
    absl::MutexLock lock(&mu);
    ++begun;
    const auto may = [this]() { return !held; };
    mu.Await(absl::Condition(&may));
    last = snapshot.state;
    if (!status.ok()) return status;
    saved.insert(snapshot.state.step);
    if (snapshot.replaces) best.reset();  // as if it was that one
    return "there/" + checkpoint::CheckpointName(snapshot.state.step);
  }
  absl::StatusOr<bool> MarkBest(int64_t step, const std::string& metric, double value,
                                bool larger_is_better) override {
    absl::MutexLock lock(&mu);
    marked.push_back({step, metric, value, larger_is_better});
    const auto may = [this]() { return !held_marks; };
    mu.Await(absl::Condition(&may));
    if (!saved.contains(step)) return false;
    const bool better = IsBetterLocked(value, larger_is_better);
    if (better) best = value;
    return better;
  }
  absl::StatusOr<std::shared_ptr<checkpoint::StagedFile>> StageFile(const std::string&) override {
    return absl::UnimplementedError("no files");
  }
  bool IsBetter(int64_t, const std::string&, double value, bool larger_is_better) const override {
    absl::MutexLock lock(&mu);
    return IsBetterLocked(value, larger_is_better);
  }
  bool IsBetterLocked(double value, bool larger_is_better) const {
    return !best || (larger_is_better ? value > *best : value < *best);
  }
  bool Pin(int64_t) override { return true; }
  void Unpin(int64_t) override {}
  std::vector<int64_t> steps() const override {
    absl::MutexLock lock(&mu);
    return {saved.begin(), saved.end()};
  }
  void Hold(bool on) {
    absl::MutexLock lock(&mu);
    held = on;
  }
  void HoldMarks(bool on) {
    absl::MutexLock lock(&mu);
    held_marks = on;
  }
  void AwaitMarks(size_t count) {
    absl::MutexLock lock(&mu);
    const auto there = [&] { return marked.size() >= count; };
    EXPECT_TRUE(mu.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(20)));
  }
  void Fail(absl::Status with) {
    absl::MutexLock lock(&mu);
    status = std::move(with);
  }
  void AwaitBegun(int count) {
    absl::MutexLock lock(&mu);
    const auto there = [&] { return begun >= count; };
    EXPECT_TRUE(mu.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(20)));
  }

  struct Mark {
    int64_t step;
    std::string metric;
    double value;
    bool larger;
  };
  mutable absl::Mutex mu;
  bool held = false, held_marks = false;
  int begun = 0;
  absl::Status status;
  checkpoint::SavedState last;
  std::set<int64_t> saved;
  std::vector<Mark> marked;
  std::optional<double> best;
};

class CheckpointsTest : public ::testing::Test {
 protected:
  CheckpointsTest() {
    options_.checkpoint = Every(2, {});
    options_.deadline = std::chrono::seconds(20);
    options_.run_id = [] { return "a1"; };
    options_.job = {{"program", "linear"}};
    options_.versions = {{"muster", "9"}};
  }
  void Make() {
    checkpoints_ = Checkpoints::Make(options_);
    checkpoints_->Open(store_, std::nullopt);
  }
  static Snapshot At(int64_t step) {
    Snapshot snapshot;
    snapshot.state.step = step;
    return snapshot;
  }
  // Acts like the loop after a step.
  bool Step(SaveMoment moment) {
    if (!checkpoints_->Wanted(moment)) return false;
    checkpoints_->Save(At(moment.step));
    return true;
  }
  void Validated(int64_t step, double loss) {
    EpochReport report;
    report.split = "validation";
    report.step = step;
    report.metrics = {{"loss", loss}};
    checkpoints_->OnEpoch(report);
  }

  CheckpointsOptions options_;
  const std::shared_ptr<FakeStore> store_ = std::make_shared<FakeStore>();
  std::unique_ptr<Checkpoints> checkpoints_;
};

TEST_F(CheckpointsTest, NothingIsWantedBeforeThereIsAStore) {
  checkpoints_ = Checkpoints::Make(options_);
  EXPECT_FALSE(checkpoints_->Wanted({.step = 2, .last = true}));
  EXPECT_TRUE(checkpoints_->Drain().ok());
}

TEST_F(CheckpointsTest, WhatCannotBeTakenIsCountedAsDropped) {
  Make();
  EXPECT_FALSE(checkpoints_->Wanted({.step = 1, .busy = true})) << "none is due";
  EXPECT_FALSE(checkpoints_->Wanted({.step = 2, .busy = true}));
  EXPECT_EQ(checkpoints_->Record().dropped, 1);
  EXPECT_TRUE(Step({.step = 4}));
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_EQ(checkpoints_->Record().dropped, 1);
}

TEST_F(CheckpointsTest, ACheckpointSaysWhereItComesFromAndIsAnnounced) {
  std::vector<std::string> announced;
  options_.on_published = [&](int64_t step, const std::string& name, const std::string& path,
                              bool final) {
    announced.push_back(fmt::format("{} {} {} {}", step, name, path, final));
  };
  Make();
  EXPECT_FALSE(Step({.step = 1}));
  EXPECT_TRUE(Step({.step = 2}));
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_TRUE(Step({.step = 3, .last = true}));
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_EQ(store_->last.run_id, "a1");
  EXPECT_EQ(store_->last.job["program"], "linear");
  EXPECT_EQ(store_->last.versions.at("muster"), "9");
  EXPECT_THAT(announced, ElementsAre("2 step-00000002 there/step-00000002 false",
                                     "3 step-00000003 there/step-00000003 true"));
  const CheckpointRecord record = checkpoints_->Record();
  EXPECT_EQ(record.newest, "checkpoints/step-00000003");
  EXPECT_EQ(record.written, 2);
  EXPECT_EQ(record.dropped + record.failed, 0);
}

TEST_F(CheckpointsTest, OneIsWrittenAtATimeAndADueOneMeanwhileIsLeftOut) {
  Make();
  store_->Hold(true);
  EXPECT_TRUE(Step({.step = 2}));
  store_->AwaitBegun(1);
  EXPECT_FALSE(Step({.step = 4}));
  EXPECT_FALSE(Step({.step = 6}));
  EXPECT_EQ(checkpoints_->Record().dropped, 2);
  store_->Hold(false);
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_TRUE(Step({.step = 8}));
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_THAT(store_->steps(), ElementsAre(2, 8));
}

TEST_F(CheckpointsTest, TheLastOneAndAStopWaitForTheOneBefore) {
  for (const bool last : {true, false}) {
    Make();
    store_->Hold(true);
    const int begun = store_->begun;
    EXPECT_TRUE(Step({.step = 2}));
    store_->AwaitBegun(begun + 1);
    std::thread release([&] { store_->Hold(false); });
    EXPECT_TRUE(Step({.step = 3, .last = last, .stopping = !last}));
    release.join();
    EXPECT_TRUE(checkpoints_->Drain().ok());
    EXPECT_THAT(store_->steps(), ElementsAre(2, 3));
    EXPECT_EQ(checkpoints_->Record().dropped, 0);
  }
}

TEST_F(CheckpointsTest, AWriteThatDoesNotEndIsAnErrorInTime) {
  options_.deadline = std::chrono::milliseconds(50);
  Make();
  store_->Hold(true);
  EXPECT_TRUE(Step({.step = 2}));
  store_->AwaitBegun(1);
  EXPECT_FALSE(Step({.step = 3, .last = true}));
  const absl::Status status = checkpoints_->Drain();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kRetryable);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("timeouts.phase.save"));
  EXPECT_EQ(checkpoints_->Record().failed, 1);
  // The write that was in the way ends well after all: the last one is not saved for that.
  store_->Hold(false);
  const MonotonicTime end = Clock::now() + std::chrono::seconds(20);
  while (checkpoints_->Record().written == 0 && Clock::now() < end) std::this_thread::yield();
  EXPECT_THAT(store_->steps(), ElementsAre(2));
  EXPECT_FALSE(checkpoints_->Drain().ok());
}

TEST_F(CheckpointsTest, AWriteThatHangsHoldsNobodyUp) {
  options_.deadline = std::chrono::milliseconds(50);
  Make();
  store_->Hold(true);
  EXPECT_TRUE(Step({.step = 2}));
  store_->AwaitBegun(1);
  checkpoints_.reset();  // within a moment, with the write still under way
  store_->Hold(false);
}

TEST_F(CheckpointsTest, AFailedSaveIsCountedAndTheNextDueOneTriesAgain) {
  Make();
  store_->Fail(absl::ResourceExhaustedError("could not save: no space left on device"));
  for (int64_t step : {2, 4}) {
    EXPECT_TRUE(Step({.step = step}));
    EXPECT_FALSE(checkpoints_->Drain().ok());
  }
  CheckpointRecord record = checkpoints_->Record();
  EXPECT_EQ(record.failed, 2);
  EXPECT_EQ(record.newest, "");
  EXPECT_EQ(record.last_error, "could not save: no space left on device");
  store_->Fail(absl::OkStatus());
  EXPECT_TRUE(Step({.step = 6}));
  EXPECT_TRUE(checkpoints_->Drain().ok());
  record = checkpoints_->Record();
  EXPECT_EQ(record.written, 1);
  EXPECT_EQ(record.newest, "checkpoints/step-00000006");
}

TEST_F(CheckpointsTest, ValidationMarksTheBestOfThoseThatAreWritten) {
  Make();
  store_->Hold(true);
  EXPECT_TRUE(Step({.step = 2}));
  Validated(2, 0.5);  // before it is written
  store_->Hold(false);
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_EQ(checkpoints_->Record().best, "checkpoints/step-00000002");
  Validated(3, 0.1);  // has no checkpoint, and the loop does not ask for one
  EXPECT_TRUE(Step({.step = 4}));
  Validated(4, 0.7);
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_EQ(checkpoints_->Record().best, "checkpoints/step-00000002");
  EXPECT_TRUE(Step({.step = 6}));
  Validated(6, 0.4);
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_EQ(checkpoints_->Record().best, "checkpoints/step-00000006");
  EXPECT_FALSE(store_->marked.front().larger);
}

TEST_F(CheckpointsTest, AValidationThatIsTheBestIsSavedWhateverTheIntervalsSay) {
  Make();
  EXPECT_FALSE(Step({.step = 3, .validated = true})) << "nothing was validated";
  Validated(3, 0.5);
  EXPECT_FALSE(Step({.step = 3})) << "not before it is validated";
  EXPECT_TRUE(Step({.step = 3, .validated = true}));
  EXPECT_FALSE(Step({.step = 3, .validated = true})) << "it is saved";
  Validated(5, 0.6);
  EXPECT_FALSE(Step({.step = 5, .validated = true})) << "worse";
  Validated(7, 0.5);
  EXPECT_FALSE(Step({.step = 7, .validated = true})) << "no better";
  Validated(9, 0.4);
  EXPECT_TRUE(Step({.step = 9, .validated = true}));
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_EQ(checkpoints_->Record().best, "checkpoints/step-00000009");
  EXPECT_EQ(checkpoints_->Record().best_metric, "loss");
  EXPECT_EQ(checkpoints_->Record().best_value, 0.4);
  EXPECT_EQ(checkpoints_->Record().best_metrics.at("loss"), 0.4);
  EXPECT_THAT(store_->saved, ElementsAre(3, 9));
  EXPECT_EQ(checkpoints_->Record().dropped, 0);
}

TEST_F(CheckpointsTest, WhatIsBeingMarkedCountsAlready) {
  Make();
  store_->HoldMarks(true);
  Validated(3, 0.4);
  EXPECT_TRUE(Step({.step = 3, .validated = true}));
  store_->AwaitMarks(1);
  Validated(5, 0.5);
  EXPECT_FALSE(Step({.step = 5, .validated = true})) << "worse than what is being marked";
  store_->HoldMarks(false);
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_THAT(store_->saved, ElementsAre(3));
}

TEST_F(CheckpointsTest, TheBestMayGoByTheEpochItself) {
  options_.checkpoint.best_of_training = true;
  Make();
  Validated(3, 0.1);
  EXPECT_FALSE(Step({.step = 3, .validated = true})) << "validation does not count";
  EpochReport epoch = {.split = "train", .step = 5, .metrics = {{"loss", 0.5}}};
  checkpoints_->OnEpoch(epoch);
  EXPECT_TRUE(Step({.step = 5, .validated = true}));
  epoch.step = 7;
  epoch.metrics["loss"] = 0.6;
  checkpoints_->OnEpoch(epoch);
  EXPECT_FALSE(Step({.step = 7, .validated = true})) << "worse";
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_EQ(checkpoints_->Record().best, "checkpoints/step-00000005");
}

TEST_F(CheckpointsTest, AnotherOwnerIsNoticed) {
  options_.check_owner = [] { return Superseded("another chief owns the folder"); };
  Make();
  EXPECT_TRUE(absl::IsAborted(checkpoints_->CheckOwner()));
}

TEST_F(CheckpointsTest, TheBestValidationWaitsForTheSaveBefore) {
  Make();
  store_->Hold(true);
  EXPECT_TRUE(Step({.step = 2}));
  store_->AwaitBegun(1);
  Validated(3, 0.5);
  std::thread release([&] {
    absl::SleepFor(absl::Milliseconds(50));
    store_->Hold(false);
  });
  EXPECT_TRUE(Step({.step = 3, .validated = true}));
  release.join();
  Validated(5, 0.55);
  EXPECT_FALSE(Step({.step = 5, .validated = true})) << "worse than what is about to be marked";
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_EQ(checkpoints_->Record().best, "checkpoints/step-00000003");
}

TEST_F(CheckpointsTest, WhereItCannotBeSavedInTimeTrainingGoesOn) {
  options_.deadline = std::chrono::milliseconds(20);
  Make();
  store_->Hold(true);
  EXPECT_TRUE(Step({.step = 2}));
  Validated(3, 0.5);
  EXPECT_FALSE(Step({.step = 3, .validated = true}));
  store_->Hold(false);
  // Drain waits for at most the deadline. On a busy host, the end of the write may take longer.
  const absl::Time limit = absl::Now() + absl::Seconds(20);
  while (checkpoints_->Record().written == 0 && absl::Now() < limit)
    absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(checkpoints_->Drain().ok()) << "no failure of the job";
  EXPECT_EQ(checkpoints_->Record().failed, 1);
  EXPECT_THAT(checkpoints_->Record().last_error, HasSubstr("timeouts.phase.save"));
}

TEST_F(CheckpointsTest, AnEvaluatorDecidesAndValidationSavesNothing) {
  Make();
  EXPECT_TRUE(Step({.step = 2}));
  ASSERT_TRUE(checkpoints_->Drain().ok());
  checkpoints_->Evaluated(2, {{"loss", 0.5}});
  Validated(3, 0.1);
  EXPECT_FALSE(Step({.step = 3, .validated = true}));
}

// The earlier chief was lost after validation: with its checkpoint on the disk, or while it wrote
// the checkpoint, which is then written again.
TEST_F(CheckpointsTest, ASuccessorMarksWhatALostChiefHadValidated) {
  StartReport start;
  start.start_step = 6;
  start.passes = {{.split = "validation", .step = 6, .metrics = {{"loss", 0.5}}},
                  {.split = "test", .step = 6, .metrics = {{"loss", 0.25}}}};
  for (const bool saved : {false, true}) {
    store_->saved = saved ? std::set<int64_t>{6} : std::set<int64_t>{};
    store_->best.reset();
    Make();
    checkpoints_->OnStart(start);
    if (!saved) {
      EXPECT_TRUE(Step({.step = 6, .last = true}));
    }
    checkpoints_->OnStart(start);  // a later generation of this process: nothing new
    ASSERT_TRUE(checkpoints_->Drain().ok());
    EXPECT_EQ(checkpoints_->Record().best, "checkpoints/step-00000006") << saved;
    EXPECT_EQ(store_->best, 0.5);
    EXPECT_EQ(store_->marked.size(), 1u);
    store_->marked.clear();
    checkpoints_.reset();
  }
}

TEST_F(CheckpointsTest, OnceAnEvaluatorReportedItAloneDecides) {
  Make();
  EXPECT_TRUE(Step({.step = 2}));
  ASSERT_TRUE(checkpoints_->Drain().ok());
  checkpoints_->Evaluated(2, {{"loss", 0.6}});
  Validated(2, 0.1);
  ASSERT_TRUE(checkpoints_->Drain().ok());
  ASSERT_EQ(store_->marked.size(), 1u);
  EXPECT_EQ(store_->marked[0].value, 0.6);
}

TEST_F(CheckpointsTest, AMetricThatNobodyGivesMarksNothing) {
  options_.checkpoint.best = "accuracy";
  Make();
  EXPECT_TRUE(Step({.step = 2}));
  Validated(2, 0.1);
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_THAT(store_->marked, IsEmpty());
}

// Early stopping by another metric: the last step is the best one, and then has the weights of
// another step.
TEST_F(CheckpointsTest, TheBestIsNotOneThatHasOtherWeightsThanWereMeasured) {
  Make();
  EXPECT_TRUE(Step({.step = 2}));
  Validated(2, 0.5);
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_TRUE(Step({.step = 4}));
  Validated(4, 0.6);
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_TRUE(Step({.step = 6}));
  Validated(6, 0.25);
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_EQ(checkpoints_->Record().best, "checkpoints/step-00000006");
  ASSERT_TRUE(checkpoints_->Wanted({.step = 6, .last = true}));
  Snapshot end = At(6);
  end.replaces = true;
  end.state.extras.callbacks.emplace().ended = true;
  end.state.extras.callbacks->weights_of = 4;
  store_->Hold(true);
  checkpoints_->Save(end);
  store_->AwaitBegun(4);
  checkpoints_->Evaluated(6, {{"loss", 0.1}});  // of what it was
  store_->Hold(false);
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_EQ(checkpoints_->Record().best, "checkpoints/step-00000002");
  EXPECT_EQ(checkpoints_->Record().best_value, 0.5);
  checkpoints_->Evaluated(6, {{"loss", 0.125}});
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_EQ(checkpoints_->Record().best, "checkpoints/step-00000006") << "of what it is";
}

TEST_F(CheckpointsTest, WhatWasMeasuredBeforeOtherWeightsCameMarksNothing) {
  Make();
  StartReport start;
  start.start_step = 6;
  start.weights_of = 4;
  start.passes = {{.split = "validation", .step = 6, .metrics = {{"loss", 0.5}}}};
  checkpoints_->OnStart(start);
  EXPECT_TRUE(Step({.step = 6, .last = true}));
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_THAT(store_->marked, IsEmpty());
}

TEST_F(CheckpointsTest, WhatIsDueIsWantedAlsoWhereItIsNotTheBest) {
  Make();
  Validated(3, 0.5);
  EXPECT_TRUE(Step({.step = 3, .requested = true, .validated = true}));
  ASSERT_TRUE(checkpoints_->Drain().ok());
  Validated(5, 0.6);
  EXPECT_TRUE(Step({.step = 5, .requested = true, .validated = true})) << "worse, but asked for";
  ASSERT_TRUE(checkpoints_->Drain().ok());
  Validated(8, 0.7);
  EXPECT_TRUE(Step({.step = 8, .validated = true})) << "worse, but due";
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_FALSE(Step({.step = 8, .requested = true, .validated = true})) << "it is there";
  EXPECT_EQ(checkpoints_->Record().best, "checkpoints/step-00000003");
}

TEST_F(CheckpointsTest, TheBestWaitsAlsoWhereACallbackAskedForIt) {
  Make();
  store_->Hold(true);
  EXPECT_TRUE(Step({.step = 2}));
  store_->AwaitBegun(1);
  Validated(4, 0.5);
  std::thread release([&] {
    absl::SleepFor(absl::Milliseconds(50));
    store_->Hold(false);
  });
  EXPECT_TRUE(Step({.step = 4, .requested = true, .validated = true}));
  release.join();
  ASSERT_TRUE(checkpoints_->Drain().ok());
  EXPECT_EQ(checkpoints_->Record().best, "checkpoints/step-00000004");
  EXPECT_EQ(checkpoints_->Record().dropped, 0);
}

// Before its validation, and after.
TEST_F(CheckpointsTest, AStepIsLeftOutOnce) {
  Make();
  store_->Hold(true);
  EXPECT_TRUE(Step({.step = 2}));
  store_->AwaitBegun(1);
  for (const bool validated : {false, true}) {
    EXPECT_FALSE(Step({.step = 4, .validated = validated}));
    EXPECT_EQ(checkpoints_->Record().dropped, 1);
  }
  store_->Hold(false);
}

}  // namespace
}  // namespace muster::chief
