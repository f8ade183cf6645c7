#include "chief/model_dir/resume.h"

#include <gmock/gmock.h>

#include "tests/unit/checkpoint/memory_file_system.h"

namespace muster::chief {
namespace {

using checkpoint::SavedState;
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

SavedState StateOf(const Job& job, int64_t step, int64_t epoch, int64_t offset = 0) {
  SavedState state;
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

TEST(DecideStart, AnEmptyModelDirStartsARun) {
  const auto start = DecideStart(MakeJob(), {});
  ASSERT_TRUE(start.ok());
  EXPECT_EQ(start->kind, StartKind::kFresh);
  EXPECT_FALSE(start->continues);
}

TEST(DecideStart, AnUnfinishedRunGoesOn) {
  const Job job = MakeJob();
  for (const char* status : {"preempted", "failed"}) {
    ModelDirContent content{true, ResultOf(status, 13, 1), StateOf(job, 13, 1, 24)};
    const auto start = DecideStart(job, content);
    ASSERT_TRUE(start.ok());
    EXPECT_EQ(start->kind, StartKind::kRestore);
    EXPECT_TRUE(start->continues);
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
  const ModelDirContent content{true, ResultOf("completed", 50, 5), StateOf(job, 50, 5)};
  for (const Json& keys : {Json{}, Json{{"epochs", 3}}, Json{{"max_steps", 50}}}) {
    const auto start = DecideStart(MakeJob(keys.is_null() ? Json::object() : keys), content);
    ASSERT_TRUE(start.ok());
    EXPECT_EQ(start->kind, StartKind::kFinished);
    EXPECT_EQ(start->reason,
              "the job in model_dir 'run' was trained to its end before: step 50, 5 epochs; more "
              "epochs or max_steps continue from there");
  }
  for (const Json& keys : {Json{{"epochs", 6}}, Json{{"epochs", nullptr}, {"max_steps", 51}},
                           Json{{"epochs", 6}, {"max_steps", 51}}}) {
    const auto start = DecideStart(MakeJob(keys), content);
    ASSERT_TRUE(start.ok());
    EXPECT_EQ(start->kind, StartKind::kRestore) << keys;
    EXPECT_TRUE(start->passes_done);
    EXPECT_TRUE(start->continues);
  }
}

TEST(DecideStart, MaxStepsInTheMiddleOfAnEpochIsNoWholeEpoch) {
  const Job job = MakeJob({{"max_steps", 15}});
  const ModelDirContent content{true, ResultOf("completed", 15, 2), StateOf(job, 15, 1, 40)};
  EXPECT_EQ(DecideStart(job, content)->kind, StartKind::kFinished);
  EXPECT_EQ(DecideStart(MakeJob({{"epochs", 2}}), content)->kind, StartKind::kRestore);
  // Nor where the newest checkpoint is lost, and an older one all that there is.
  const ModelDirContent older{true, ResultOf("completed", 15, 2), StateOf(job, 12, 1, 16)};
  EXPECT_EQ(DecideStart(job, older)->kind, StartKind::kFinished);
  EXPECT_EQ(DecideStart(MakeJob({{"epochs", 2}}), older)->kind, StartKind::kRestore);
}

TEST(SetDue, MakesThePassesOfTheEndWhereverItIs) {
  const Job job = MakeJob();
  const auto due = [](const Job& now, const SavedState& saved, bool passes_done = false) {
    SavedState state = saved;
    SetDue(now, {.passes_done = passes_done}, &state);
    return std::pair(state.validation_due, state.test_due);
  };
  using Due = std::pair<bool, bool>;
  SavedState end = StateOf(job, 50, 5);
  end.validation_due = end.test_due = true;
  EXPECT_EQ(due(job, end), Due(true, true));
  EXPECT_EQ(due(job, end, true), Due(false, false));
  EXPECT_EQ(due(MakeJob({{"epochs", 6}}), end), Due(true, true))
      << "not the end any more, but the program may test every so many epochs: the loop knows";
  SavedState test = end;  // stopped within the test pass
  test.validation_due = false;
  EXPECT_EQ(due(job, test), Due(false, true));
  const SavedState within = StateOf(job, 13, 1, 24);
  EXPECT_EQ(due(job, within), Due(false, false));
  EXPECT_EQ(due(MakeJob({{"max_steps", 13}}), within), Due(true, true)) << "now it is the end";
}

TEST(DecideStart, WhatTheProgramFinishedIsFinishedUntilTheJobGrows) {
  const Job job = MakeJob();
  SavedState flagged = StateOf(job, 13, 1, 24);
  flagged.extras.finished = true;
  Json result = ResultOf("completed", 13, 2);
  result["finished"] = true;
  // The state may have been saved before the program ended its training after that step.
  for (const ModelDirContent& content :
       {ModelDirContent{true, ResultOf("completed", 13, 2), flagged},
        ModelDirContent{true, result, StateOf(job, 13, 1, 24)}}) {
    EXPECT_EQ(DecideStart(job, content)->kind, StartKind::kFinished);
    EXPECT_EQ(DecideStart(MakeJob({{"epochs", 4}}), content)->kind, StartKind::kFinished);
    EXPECT_EQ(DecideStart(MakeJob({{"epochs", 6}}), content)->kind, StartKind::kRestore);
  }
  const ModelDirContent older{true, result, StateOf(job, 12, 1, 16)};
  EXPECT_EQ(DecideStart(job, older)->kind, StartKind::kRestore) << "its end is not there";
  const ModelDirContent failed{true, ResultOf("failed", 13, 2), flagged};
  EXPECT_EQ(DecideStart(job, failed)->kind, StartKind::kRestore) << "to end it well";
  SavedState state = flagged;
  SetDue(job, *DecideStart(job, failed), &state);
  EXPECT_TRUE(state.extras.finished);
  SetDue(MakeJob({{"epochs", 6}}), *DecideStart(job, failed), &state);
  EXPECT_FALSE(state.extras.finished) << "it trains on";
}

TEST(DecideStart, AResultOfAnotherRunCountsForNothing) {
  const Job job = MakeJob();
  const ModelDirContent content{false, ResultOf("completed", 50, 5), StateOf(job, 50, 5)};
  const auto start = DecideStart(job, content);
  EXPECT_EQ(start->kind, StartKind::kRestore);
  EXPECT_FALSE(start->continues);
  EXPECT_EQ(DecideStart(job, {false, ResultOf("completed", 50, 5)})->kind, StartKind::kFresh);
}

TEST(DecideStart, AFinishedRunWithoutCheckpointsIsFinishedOrStartsAgain) {
  const ModelDirContent content{true, ResultOf("completed", 50, 5)};
  EXPECT_EQ(DecideStart(MakeJob(), content)->kind, StartKind::kFinished);
  const auto more = DecideStart(MakeJob({{"epochs", 6}}), content);
  EXPECT_EQ(more->kind, StartKind::kFresh);
  EXPECT_THAT(more->reason, HasSubstr("no checkpoint to continue from"));
}

TEST(DecideStart, AnOlderCheckpointThanTheResultMakesItsPassesAgain) {
  const Job job = MakeJob();
  const ModelDirContent content{true, ResultOf("completed", 50, 5), StateOf(job, 40, 4)};
  EXPECT_EQ(DecideStart(job, content)->kind, StartKind::kFinished);
  const auto more = DecideStart(MakeJob({{"epochs", 6}}), content);
  EXPECT_EQ(more->kind, StartKind::kRestore);
  EXPECT_FALSE(more->passes_done);
}

TEST(DecideStart, WhatMustStayIsRefusedByName) {
  const Job job = MakeJob();
  for (const bool finished : {false, true}) {
    const ModelDirContent content{true, ResultOf(finished ? "completed" : "failed", 50, 5),
                                  StateOf(job, 50, 5)};
    for (const auto& [key, keys] : std::vector<std::pair<std::string, Json>>{
             {"program", {{"program", "fashion_mnist"}}},
             {"program_args.bias_init", {{"program_args", {{"bias_init", 2}}}}},
             {"optimizer.name", {{"optimizer", {{"name", "adam"}}}}},
             {"global_batch_size", {{"global_batch_size", 16}}},
             {"seed", {{"seed", 43}}}}) {
      const auto start = DecideStart(MakeJob(keys), content);
      EXPECT_EQ(ExitCodeOf(start.status()), ExitCode::kConfiguration) << key;
      EXPECT_THAT(Error(start), HasSubstr("was trained with another " + key + ": ")) << key;
    }
    EXPECT_THAT(Error(DecideStart(MakeJob({{"global_batch_size", 16}}), content)),
                HasSubstr("model_dir 'run' was trained with another global_batch_size: 8 there, "
                          "16 here"));
    // Keys that may change.
    EXPECT_TRUE(
        DecideStart(MakeJob({{"learning_rate", 0.5}, {"checkpoint", {{"keep", 9}}}}), content)
            .ok());
  }
}

TEST(DecideStart, TheSameBatchSizeMayBeSaidInAnotherWay) {
  const Job before = MakeJob({{"global_batch_size", nullptr}, {"per_replica_batch_size", 4}});
  SavedState state = StateOf(before, 5, 0, 40);
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
  const ModelDirContent content{true, std::nullopt, DataError("all of them are damaged")};
  EXPECT_EQ(ExitCodeOf(DecideStart(MakeJob(), content).status()), ExitCode::kDataDamaged);
  // Nothing is needed of them where nothing is left to do.
  const ModelDirContent finished{true, ResultOf("completed", 50, 5),
                                 DataError("all of them are damaged")};
  EXPECT_EQ(DecideStart(MakeJob(), finished)->kind, StartKind::kFinished);
  EXPECT_FALSE(DecideStart(MakeJob({{"epochs", 6}}), finished).ok());
}

TEST(DecideStart, APathIsForTheFirstStartOnly) {
  const Job job = MakeJob({{"restore", "/elsewhere"}});
  ModelDirContent content;
  const auto missing = DecideStart(job, content);
  EXPECT_EQ(ExitCodeOf(missing.status()), ExitCode::kConfiguration);
  EXPECT_THAT(Error(missing), HasSubstr("restore is '/elsewhere', where there is no checkpoint"));
  content.elsewhere = StateOf(MakeJob(), 30, 3);
  const auto copy = DecideStart(job, content);
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->kind, StartKind::kCopy);
  EXPECT_FALSE(copy->continues);
  EXPECT_THAT(Error(DecideStart(MakeJob({{"restore", "/elsewhere"}, {"seed", 1}}), content)),
              HasSubstr("restore '/elsewhere' was trained with another seed: 42 there, 1 here"));
  content.elsewhere = DataError("damaged");
  EXPECT_EQ(ExitCodeOf(DecideStart(job, content).status()), ExitCode::kDataDamaged);
  content.same_run = true;
  content.own = StateOf(MakeJob(), 40, 4);
  EXPECT_EQ(DecideStart(job, content)->kind, StartKind::kRestore);
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
  Job fresh = job;
  fresh.restore = "never";
  EXPECT_FALSE(check(fresh).ok());
}

}  // namespace
}  // namespace muster::chief
