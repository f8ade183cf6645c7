#include "chief/model_dir/resume.h"

#include <gmock/gmock.h>

#include "common/checkpoint/files/memory_file_system.h"

namespace muster::chief {
namespace {

using checkpoint::TrainingState;
using ::testing::HasSubstr;

Job MakeJob(const Json& keys = Json::object()) {
  Json json = {{"program", "linear"}, {"global_batch_size", 8},
               {"epochs", 5},         {"optimizer", {{"name", "sgd"}}},
               {"model_dir", "run"},  {"program_args", {{"bias_init", 1}}}};
  json.update(keys);
  const absl::StatusOr<Job> job = JobFromJson(json);
  EXPECT_TRUE(job.ok()) << Message(job.status());
  return *job;
}

TrainingState StateOf(const Job& job, int64_t step, int64_t epoch, int64_t offset = 0) {
  TrainingState state;
  state.step = step;
  state.epoch = epoch;
  state.offset = offset;
  state.global_batch_size = job.global_batch_size.value_or(8);
  state.run_id = "a1";
  state.job = JobToJson(job);
  return state;
}

Json ResultOf(std::string_view status, int64_t steps, int64_t epochs) {
  return {{"status", status}, {"steps", steps}, {"epochs", epochs}};
}

std::string Error(const absl::StatusOr<StartDecision>& decision) {
  return std::string(Message(decision.status()));
}

TEST(DecideStart, AnEmptyModelDirStartsAnew) {
  const auto start = DecideStart(MakeJob(), {});
  ASSERT_TRUE(start.ok());
  EXPECT_EQ(start->kind, StartKind::kFresh);
  EXPECT_FALSE(start->goes_on);
}

TEST(DecideStart, AnUnfinishedRunGoesOn) {
  const Job job = MakeJob();
  for (const char* status : {"preempted", "failed"}) {
    Found found{true, ResultOf(status, 13, 1), StateOf(job, 13, 1, 24)};
    const auto start = DecideStart(job, found);
    ASSERT_TRUE(start.ok());
    EXPECT_EQ(start->kind, StartKind::kRestore);
    EXPECT_TRUE(start->goes_on);
    EXPECT_FALSE(start->passes_done);
    EXPECT_EQ(start->reason,
              "going on after step 13 (epoch 2, 24 examples into it), from "
              "run/checkpoints/step-00000013");
  }
}

TEST(DecideStart, TrainedToTheEndButNotEvaluatedIsNotFinished) {
  const Job job = MakeJob();
  const auto start = DecideStart(job, {true, std::nullopt, StateOf(job, 50, 5)});
  ASSERT_TRUE(start.ok());
  EXPECT_EQ(start->kind, StartKind::kRestore);
  EXPECT_FALSE(start->passes_done);
}

TEST(DecideStart, AFinishedRunIsFinishedUntilItHasMoreToDo) {
  const Job job = MakeJob();
  const Found found{true, ResultOf("completed", 50, 5), StateOf(job, 50, 5)};
  for (const Json& keys : {Json{}, Json{{"epochs", 3}}, Json{{"max_steps", 50}}}) {
    const auto start = DecideStart(MakeJob(keys.is_null() ? Json::object() : keys), found);
    ASSERT_TRUE(start.ok());
    EXPECT_EQ(start->kind, StartKind::kFinished);
    EXPECT_EQ(start->reason,
              "the job in model_dir 'run' was trained to its end before: step 50, 5 epochs; more "
              "epochs or max_steps go on from there");
  }
  for (const Json& keys : {Json{{"epochs", 6}}, Json{{"epochs", nullptr}, {"max_steps", 51}},
                           Json{{"epochs", 6}, {"max_steps", 51}}}) {
    const auto start = DecideStart(MakeJob(keys), found);
    ASSERT_TRUE(start.ok());
    EXPECT_EQ(start->kind, StartKind::kRestore) << keys;
    EXPECT_TRUE(start->passes_done);
    EXPECT_TRUE(start->goes_on);
  }
}

TEST(DecideStart, MaxStepsInTheMiddleOfAnEpochIsNoWholeEpoch) {
  const Job job = MakeJob({{"max_steps", 15}});
  const Found found{true, ResultOf("completed", 15, 2), StateOf(job, 15, 1, 40)};
  EXPECT_EQ(DecideStart(job, found)->kind, StartKind::kFinished);
  EXPECT_EQ(DecideStart(MakeJob({{"epochs", 2}}), found)->kind, StartKind::kRestore);
  // Nor where the newest checkpoint is lost, and an older one all that there is.
  const Found older{true, ResultOf("completed", 15, 2), StateOf(job, 12, 1, 16)};
  EXPECT_EQ(DecideStart(job, older)->kind, StartKind::kFinished);
  EXPECT_EQ(DecideStart(MakeJob({{"epochs", 2}}), older)->kind, StartKind::kRestore);
}

TEST(SetDue, MakesThePassesOfTheEndWhereverItIs) {
  const Job job = MakeJob();
  const auto due = [](const Job& now, const TrainingState& saved, bool passes_done = false) {
    TrainingState state = saved;
    SetDue(now, {.passes_done = passes_done}, &state);
    return std::pair(state.validation_due, state.test_due);
  };
  using Due = std::pair<bool, bool>;
  TrainingState end = StateOf(job, 50, 5);
  end.validation_due = end.test_due = true;
  EXPECT_EQ(due(job, end), Due(true, true));
  EXPECT_EQ(due(job, end, true), Due(false, false));
  EXPECT_EQ(due(MakeJob({{"epochs", 6}}), end), Due(true, true))
      << "not the end any more, but the program may test every so many epochs: the loop knows";
  TrainingState test = end;  // stopped within the test pass
  test.validation_due = false;
  EXPECT_EQ(due(job, test), Due(false, true));
  const TrainingState within = StateOf(job, 13, 1, 24);
  EXPECT_EQ(due(job, within), Due(false, false));
  EXPECT_EQ(due(MakeJob({{"max_steps", 13}}), within), Due(true, true)) << "now it is the end";
}

TEST(DecideStart, WhatTheProgramFinishedIsFinishedUntilTheJobGrows) {
  const Job job = MakeJob();
  TrainingState flagged = StateOf(job, 13, 1, 24);
  flagged.extras.finished = true;
  Json result = ResultOf("completed", 13, 2);
  result["finished"] = true;
  // The state may have been saved before the program ended its training after that step.
  for (const Found& found : {Found{true, ResultOf("completed", 13, 2), flagged},
                             Found{true, result, StateOf(job, 13, 1, 24)}}) {
    EXPECT_EQ(DecideStart(job, found)->kind, StartKind::kFinished);
    EXPECT_EQ(DecideStart(MakeJob({{"epochs", 4}}), found)->kind, StartKind::kFinished);
    EXPECT_EQ(DecideStart(MakeJob({{"epochs", 6}}), found)->kind, StartKind::kRestore);
  }
  const Found older{true, result, StateOf(job, 12, 1, 16)};
  EXPECT_EQ(DecideStart(job, older)->kind, StartKind::kRestore) << "its end is not there";
  const Found failed{true, ResultOf("failed", 13, 2), flagged};
  EXPECT_EQ(DecideStart(job, failed)->kind, StartKind::kRestore) << "to end it well";
  TrainingState state = flagged;
  SetDue(job, *DecideStart(job, failed), &state);
  EXPECT_TRUE(state.extras.finished);
  SetDue(MakeJob({{"epochs", 6}}), *DecideStart(job, failed), &state);
  EXPECT_FALSE(state.extras.finished) << "it trains on";
}

TEST(DecideStart, AResultOfAnotherRunCountsForNothing) {
  const Job job = MakeJob();
  const Found found{false, ResultOf("completed", 50, 5), StateOf(job, 50, 5)};
  const auto start = DecideStart(job, found);
  EXPECT_EQ(start->kind, StartKind::kRestore);
  EXPECT_FALSE(start->goes_on);
  EXPECT_EQ(DecideStart(job, {false, ResultOf("completed", 50, 5)})->kind, StartKind::kFresh);
}

TEST(DecideStart, AFinishedRunWithoutCheckpointsIsFinishedOrStartsAnew) {
  const Found found{true, ResultOf("completed", 50, 5)};
  EXPECT_EQ(DecideStart(MakeJob(), found)->kind, StartKind::kFinished);
  const auto more = DecideStart(MakeJob({{"epochs", 6}}), found);
  EXPECT_EQ(more->kind, StartKind::kFresh);
  EXPECT_THAT(more->reason, HasSubstr("no checkpoint to go on from"));
}

TEST(DecideStart, AnOlderCheckpointThanTheResultMakesItsPassesAgain) {
  const Job job = MakeJob();
  const Found found{true, ResultOf("completed", 50, 5), StateOf(job, 40, 4)};
  EXPECT_EQ(DecideStart(job, found)->kind, StartKind::kFinished);
  const auto more = DecideStart(MakeJob({{"epochs", 6}}), found);
  EXPECT_EQ(more->kind, StartKind::kRestore);
  EXPECT_FALSE(more->passes_done);
}

TEST(DecideStart, WhatMustStayIsRefusedByName) {
  const Job job = MakeJob();
  for (const bool finished : {false, true}) {
    const Found found{true, ResultOf(finished ? "completed" : "failed", 50, 5),
                      StateOf(job, 50, 5)};
    for (const auto& [key, keys] : std::vector<std::pair<std::string, Json>>{
             {"program", {{"program", "fashion_mnist"}}},
             {"program_args.bias_init", {{"program_args", {{"bias_init", 2}}}}},
             {"optimizer.name", {{"optimizer", {{"name", "adam"}}}}},
             {"global_batch_size", {{"global_batch_size", 16}}},
             {"seed", {{"seed", 43}}}}) {
      const auto start = DecideStart(MakeJob(keys), found);
      EXPECT_EQ(ExitCodeOf(start.status()), ExitCode::kConfiguration) << key;
      EXPECT_THAT(Error(start), HasSubstr("was trained with another " + key + ": ")) << key;
    }
    EXPECT_THAT(Error(DecideStart(MakeJob({{"global_batch_size", 16}}), found)),
                HasSubstr("model_dir 'run' was trained with another global_batch_size: 8 there, "
                          "16 here"));
    // What may change.
    EXPECT_TRUE(
        DecideStart(MakeJob({{"learning_rate", 0.5}, {"checkpoint", {{"keep", 9}}}}), found).ok());
  }
}

TEST(DecideStart, TheSameBatchSizeMayBeSaidInAnotherWay) {
  const Job before = MakeJob({{"global_batch_size", nullptr}, {"per_replica_batch_size", 4}});
  TrainingState state = StateOf(before, 5, 0, 40);
  state.global_batch_size = 8;  // on two replicas
  EXPECT_TRUE(DecideStart(MakeJob(), {true, std::nullopt, state}).ok());
  EXPECT_TRUE(DecideStart(before, {true, std::nullopt, state}).ok());
  EXPECT_THAT(Error(DecideStart(MakeJob({{"global_batch_size", 16}}), {true, {}, state})),
              HasSubstr("batch_size"));
  EXPECT_THAT(
      Error(DecideStart(MakeJob({{"global_batch_size", nullptr}, {"per_replica_batch_size", 8}}),
                        {true, {}, state})),
      HasSubstr("per_replica_batch_size: 4 there, 8 here"));
}

TEST(DecideStart, DamagedCheckpointsEndTheStart) {
  const Found found{true, std::nullopt, DataError("all of them are damaged")};
  EXPECT_EQ(ExitCodeOf(DecideStart(MakeJob(), found).status()), ExitCode::kDataDamaged);
  // Nothing is needed of them where nothing is left to do.
  const Found finished{true, ResultOf("completed", 50, 5), DataError("all of them are damaged")};
  EXPECT_EQ(DecideStart(MakeJob(), finished)->kind, StartKind::kFinished);
  EXPECT_FALSE(DecideStart(MakeJob({{"epochs", 6}}), finished).ok());
}

TEST(DecideStart, APathIsForTheFirstStartOnly) {
  const Job job = MakeJob({{"restore", "/elsewhere"}});
  Found found;
  const auto missing = DecideStart(job, found);
  EXPECT_EQ(ExitCodeOf(missing.status()), ExitCode::kConfiguration);
  EXPECT_THAT(Error(missing), HasSubstr("restore is '/elsewhere', where there is no checkpoint"));
  found.elsewhere = StateOf(MakeJob(), 30, 3);
  const auto copy = DecideStart(job, found);
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->kind, StartKind::kCopy);
  EXPECT_FALSE(copy->goes_on);
  EXPECT_THAT(Error(DecideStart(MakeJob({{"restore", "/elsewhere"}, {"seed", 1}}), found)),
              HasSubstr("restore '/elsewhere' was trained with another seed: 42 there, 1 here"));
  found.elsewhere = DataError("damaged");
  EXPECT_EQ(ExitCodeOf(DecideStart(job, found).status()), ExitCode::kDataDamaged);
  found.same_run = true;
  found.own = StateOf(MakeJob(), 40, 4);
  EXPECT_EQ(DecideStart(job, found)->kind, StartKind::kRestore);
}

TEST(PrepareStart, NeverMovesAsideOnlyWhatIsItsOwn) {
  checkpoint::MemoryFileSystem files;
  ASSERT_TRUE(checkpoint::MakeDirectories(files, "run/checkpoints/step-00000010").ok());
  const Job job = MakeJob({{"restore", "never"}});
  const auto superseded = PrepareStart(files, job, "a1", [] { return Superseded("taken"); });
  EXPECT_EQ(ExitCodeOf(superseded.status()), ExitCode::kRetryable);
  EXPECT_TRUE(*files.Exists("run/checkpoints/step-00000010"));
  const auto begun = PrepareStart(files, job, "a1", [] { return absl::OkStatus(); });
  ASSERT_TRUE(begun.ok()) << Message(begun.status());
  EXPECT_EQ(begun->decision.kind, StartKind::kFresh);
  EXPECT_FALSE(*files.Exists("run/checkpoints"));
  EXPECT_TRUE(*files.Exists("run/checkpoints-a1/step-00000010"));
}

TEST(CheckBegunSynchronously, OnlyARunThatHasSuchStepsGoesOn) {
  checkpoint::MemoryFileSystem files;
  ASSERT_TRUE(checkpoint::MakeDirectories(files, "run").ok());
  const Json synchronous = {{"parameter_server", {{"max_staleness", 0}}}};
  const Job job = MakeJob(synchronous);
  const auto check = [&](const Job& job) { return CheckBegunSynchronously(files, job); };
  EXPECT_EQ(ExitCodeOf(check(job)), ExitCode::kConfiguration) << "a new one";
  EXPECT_THAT(std::string(Message(check(job))), HasSubstr("\"multi_worker_mirrored\""));
  ASSERT_TRUE(files.Create("run/job.json").ok());
  for (const std::string& other :
       {std::string("{"), std::string("[0]"), Json::object().dump(),
        Json{{"parameter_server", {{"max_staleness", 1}}}}.dump(),
        Json{{"parameter_server", {{"max_staleness", nullptr}}}}.dump()}) {
    ASSERT_TRUE(files.Overwrite("run/job.json", other).ok());
    EXPECT_FALSE(check(job).ok()) << other;
  }
  ASSERT_TRUE(files.Overwrite("run/job.json", synchronous.dump()).ok());
  EXPECT_TRUE(check(job).ok()) << check(job);
  Job anew = job;
  anew.restore = "never";
  EXPECT_FALSE(check(anew).ok());
}

}  // namespace
}  // namespace muster::chief
