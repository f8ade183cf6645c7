#include "chief/parameter_server/director/director.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "chief/leases/chief_record.h"
#include "common/rpc/channel.h"
#include "tests/unit/parameter_server/fake_cluster.h"

namespace muster::chief::testing {
namespace {

Job SmallJob(const Json& parameter_server = Json::object()) {
  Job job;
  job.program = "fake";
  job.global_batch_size = 20;
  job.epochs = 2;
  job.summary.every_steps = 5;
  job.parameter_server = parameter_server;
  job.timeouts.join = job.timeouts.rejoin = std::chrono::seconds(30);
  return job;
}

void ExpectEveryExampleOnce(const FakeCluster& cluster, int64_t epochs, int64_t batches) {
  const auto counts = cluster.batches();
  EXPECT_EQ(static_cast<int64_t>(counts.size()), epochs * batches);
  for (const auto& [place, count] : counts)
    EXPECT_EQ(count, 1) << place.first << ", " << place.second;
}

// Expects reports of steps 1 to `last`, each once.
void ExpectStepsInOrder(Notes& notes, int64_t last) {
  absl::MutexLock lock(&notes.mu);
  ASSERT_EQ(static_cast<int64_t>(notes.step_reports.size()), last);
  for (int64_t i = 0; i < last; ++i) EXPECT_EQ(notes.step_reports[i].step, i + 1);
}

// Expects that each saved state holds exactly the updates that it counts.
void ExpectConsistentSaves(Notes& notes) {
  absl::MutexLock lock(&notes.mu);
  for (const checkpoint::Snapshot& save : notes.saves)
    for (const double value : ValuesOf(save))
      EXPECT_EQ(value, static_cast<double>(save.state.examples)) << "step " << save.state.step;
}

TEST(Director, LeadsAJobFromItsStartToItsEnd) {
  Job job = SmallJob();
  job.checkpoint.every_steps = 7;
  FakeCluster cluster({.job = job, .train = 195, .validation = 95, .test = 50});
  cluster.notes().every_steps = 7;
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.Await().ok());
  ExpectEveryExampleOnce(cluster, 2, 20);  // batches of 10, the last one of 5
  ExpectStepsInOrder(cluster.notes(), 40);
  ExpectConsistentSaves(cluster.notes());
  for (int shard = 0; shard < 2; ++shard) EXPECT_EQ(cluster.value(shard), 390);
  const auto twice = cluster.evaluated(1), once = cluster.evaluated(2);
  EXPECT_EQ(twice, std::vector<int>(95, 2)) << "after each epoch";
  EXPECT_EQ(once, std::vector<int>(50, 1));
  Notes& notes = cluster.notes();
  absl::MutexLock lock(&notes.mu);
  EXPECT_EQ(notes.starts.size(), 1u);
  EXPECT_EQ(notes.starts[0].steps_per_epoch, 20);
  EXPECT_EQ(notes.starts[0].total_steps, 40);
  EXPECT_EQ(notes.saves.back().state.step, 40);
  EXPECT_TRUE(notes.saves.back().state.validation_due);
  EXPECT_TRUE(notes.saves.back().state.test_due);
  EXPECT_GE(notes.saves.size(), 3u);
  for (const checkpoint::Snapshot& save : notes.saves)
    EXPECT_TRUE(save.state.step % 7 == 0 || save.state.step == 40) << save.state.step;
  std::vector<std::string> order;
  for (const EpochReport& report : notes.epochs) order.push_back(report.split);
  EXPECT_EQ(order,
            (std::vector<std::string>{"train", "validation", "train", "validation", "test"}));
  EXPECT_EQ(notes.epochs[1].examples, 95);
  EXPECT_DOUBLE_EQ(notes.epochs[1].metrics.at("loss"), 0.25);
  EXPECT_DOUBLE_EQ(notes.epochs[2].metrics.at("count"), 195);
  EXPECT_EQ(notes.scalars.size(), 8u);
  const DirectorRecord record = cluster.director().record();
  EXPECT_EQ(record.updates, 40);
  EXPECT_EQ(record.repeated, 0);
  EXPECT_EQ(record.staleness_max, 2);
  EXPECT_EQ(ToJson(record)["staleness"]["mean"], 1.0);
}

TEST(Director, SavesWhatValidationFindsTheBest) {
  for (const char* section : {R"({})", R"({"max_staleness": 1})"}) {
    FakeCluster cluster({.job = SmallJob(Json::parse(section)), .train = 200, .validation = 95});
    cluster.notes().saves_validated = true;
    ASSERT_TRUE(cluster.Start());
    ASSERT_TRUE(cluster.Await().ok());
    ExpectConsistentSaves(cluster.notes());
    Notes& notes = cluster.notes();
    absl::MutexLock lock(&notes.mu);
    ASSERT_EQ(notes.saves.size(), 2u) << section;
    const checkpoint::TrainingState& middle = notes.saves[0].state;
    EXPECT_EQ(middle.step, notes.saves[1].state.step / 2) << "of the first epoch";
    EXPECT_EQ(middle.offset, 0);
    EXPECT_FALSE(middle.validation_due) << "it is made";
    EXPECT_EQ(cluster.evaluated(1), std::vector<int>(95, 2));
  }
}

// While a checkpoint is written servers come and go.
TEST(Director, DirectsWhileTheBestWaitsForTheDisk) {
  Job job = SmallJob();
  FakeCluster cluster({.job = job, .train = 200, .validation = 95});
  cluster.notes().saves_validated = true;
  cluster.notes().saving = true;
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] {
    absl::MutexLock lock(&cluster.notes().mu);
    return cluster.notes().epochs.size() == 2;
  }));
  cluster.LosePs(1);
  cluster.ReturnPs(1);
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.ps(1).serves(1); }));
  EXPECT_EQ(cluster.notes().steps(), 20) << "nothing is leased meanwhile";
  cluster.notes().saving = false;
  ASSERT_TRUE(cluster.Await().ok());
  absl::MutexLock lock(&cluster.notes().mu);
  ASSERT_EQ(cluster.notes().saves.size(), 2u);
  EXPECT_EQ(cluster.notes().saves[0].state.step, 20);
}

TEST(Director, LeavesTheBestOutWhereTheDiskIsTooSlow) {
  Job job = SmallJob();
  job.timeouts.phase[static_cast<int>(Phase::kSave)] = std::chrono::milliseconds(300);
  FakeCluster cluster({.job = job, .train = 200, .validation = 95});
  cluster.notes().saves_validated = true;
  cluster.notes().saving = true;
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.Await().ok());
  absl::MutexLock lock(&cluster.notes().mu);
  ASSERT_EQ(cluster.notes().saves.size(), 1u);
  EXPECT_EQ(cluster.notes().saves[0].state.step, 40);
}

// Shows one batch in each summary.every_steps, on any worker, and each pass once.
TEST(Director, ShowsWhatProgramsShow) {
  for (const char* section : {R"({})", R"({"max_staleness": 1})"}) {
    FakeCluster cluster(
        {.job = SmallJob(Json::parse(section)), .train = 200, .validation = 95, .test = 50});
    ASSERT_TRUE(cluster.Start());
    ASSERT_TRUE(cluster.Await().ok());
    Notes& notes = cluster.notes();
    absl::MutexLock lock(&notes.mu);
    std::map<std::string, std::vector<int64_t>> steps;
    for (const auto& [split, report] : notes.images) steps[split].push_back(report.step);
    const int64_t last = 40;
    EXPECT_EQ(steps["validation"], (std::vector<int64_t>{last / 2, last}));
    EXPECT_EQ(steps["test"], std::vector<int64_t>{last});
    EXPECT_EQ(steps["train"].size(), static_cast<size_t>(last / 5));
    ASSERT_EQ(notes.histograms.size(), notes.images.size());
    for (size_t i = 0; i < notes.images.size(); ++i) {
      const auto& [split, images] = notes.images[i];
      EXPECT_EQ(images.tag, "picture");
      EXPECT_EQ(notes.histograms[i].second.distribution.max, images.pixels.at(0));
    }
  }
}

TEST(Director, EndsTheJobWhereNothingIsLeftOfAnEpochOrAPass) {
  for (const auto& [split, sentence] :
       {std::pair{Split::kTrain, "epoch 1 had no example to train on"},
        std::pair{Split::kValidation, "all of the validation data is damaged"},
        std::pair{Split::kTest, "all of the test data is damaged"}}) {
    FakeCluster cluster(
        {.job = SmallJob(), .train = 200, .validation = 95, .test = 50, .damaged = {split}});
    ASSERT_TRUE(cluster.Start());
    const absl::Status status = cluster.Await();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kDataDamaged) << status;
    EXPECT_THAT(std::string(Message(status)), ::testing::HasSubstr(sentence));
  }
}

TEST(Director, MakesNoMoreStepsThanAllowed) {
  Job job = SmallJob();
  job.max_steps = 17;
  FakeCluster cluster({.job = job, .workers = 4});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.Await().ok());
  ExpectStepsInOrder(cluster.notes(), 17);
  EXPECT_EQ(cluster.batches().size(), 17u);
  ExpectConsistentSaves(cluster.notes());
}

TEST(Director, StopsOnRequestWithEverythingSaved) {
  Job job = SmallJob();
  job.epochs = 1000;
  FakeCluster cluster({.job = job});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 15; }));
  cluster.director().RequestStop();
  const absl::Status status = cluster.Await();
  EXPECT_TRUE(absl::IsCancelled(status)) << Message(status);
  ExpectConsistentSaves(cluster.notes());
  absl::MutexLock lock(&cluster.notes().mu);
  ASSERT_EQ(cluster.notes().saves.size(), 1u);
  EXPECT_EQ(cluster.notes().saves[0].state.step, cluster.notes().step_reports.back().step);
}

// A stop that comes while nothing is out: who asks for work then could push into the copy.
TEST(Director, LeasesNothingWhileTheShardsAreCopied) {
  Job job = SmallJob();
  job.epochs = 1000;
  FakeCluster cluster({.job = job});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 15; }));
  for (int worker : {0, 1}) cluster.LoseWorker(worker);
  proto::NextRequest request;
  request.mutable_worker()->set_worker(0);
  request.mutable_worker()->set_incarnation(cluster.incarnation(0) + 1000);
  request.set_want(true);
  AdmittedMember member;
  member.task = {TaskType::kWorker, 0};
  member.incarnation = request.worker().incarnation();
  cluster.director().OnAdmitted(member);
  const auto stub = proto::Leases::NewStub(*rpc::MakeChannel(cluster.leases_address()));
  const auto ask = [&] {
    proto::NextReply reply;
    const grpc::Status status =
        stub->Next(rpc::WithDeadline(std::chrono::minutes(1)).get(), request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  };
  request.set_digest(cluster.ps(0).digest());
  for (int task : {0, 1})
    ASSERT_TRUE(
        cluster.AwaitThat([&] { return cluster.ps(task).workers()[0] == member.incarnation; }));
  // Two leases that the lost workers held, and one more.
  for (int lease = 0; lease < 3; ++lease) {
    const proto::NextReply reply = ask();
    ASSERT_TRUE(reply.lease().has_training());
    request.clear_done();
    proto::BatchDone& done = *request.add_done();
    done.set_lease(reply.lease().id());
    done.set_examples(reply.lease().end() - reply.lease().begin());
    done.add_metric_sums(1);
    request.set_want(lease < 2);
  }
  (void)ask();
  request.clear_done();
  request.set_want(true);
  std::atomic<int> asked = 0;
  cluster.ps(0).OnCut([&] {
    EXPECT_TRUE(ask().has_wait());
    ++asked;
  });
  cluster.director().RequestStop();
  EXPECT_TRUE(absl::IsCancelled(cluster.Await()));
  EXPECT_EQ(asked, 1);
}

// A deadline that is shorter than the machine has been up, and longer than any save here.
Job SavingJob(const Json& parameter_server = Json::object()) {
  Job job = SmallJob(parameter_server);
  job.timeouts.phase[static_cast<int>(Phase::kSave)] = std::chrono::seconds(20);
  return job;
}

TEST(Director, TakesTheLastCopyAgainWhereItCouldNotBeRead) {
  for (const bool stopped : {false, true}) {
    Job job = SavingJob();
    if (stopped) job.epochs = 1000;
    FakeCluster cluster({.job = job});
    cluster.ps(1).FailReads(1);
    ASSERT_TRUE(cluster.Start());
    if (stopped) {
      ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 15; }));
      cluster.director().RequestStop();
    }
    const absl::Status status = cluster.Await();
    EXPECT_TRUE(stopped ? absl::IsCancelled(status) : status.ok()) << Message(status);
    ExpectConsistentSaves(cluster.notes());
    absl::MutexLock lock(&cluster.notes().mu);
    ASSERT_EQ(cluster.notes().saves.size(), 1u);
    EXPECT_EQ(cluster.notes().saves[0].state.step, cluster.notes().step_reports.back().step);
  }
}

// Nor does the pass wait for the copy, or the copy for the pass, for ever: what is to be saved at
// an epoch's end while the copy before is still read.
TEST(Director, TakesACopyWhileAPassIsMade) {
  for (const bool lost : {false, true}) {
    Job job = SavingJob();
    job.summary.histograms_every_epochs = 1;
    FakeCluster cluster({.job = job, .validation = 100});
    cluster.ps(0).HoldReads(true);
    cluster.notes().every_steps = lost ? 0 : 15;
    if (lost) cluster.ps(0).FailReads(1);
    ASSERT_TRUE(cluster.Start());
    ASSERT_TRUE(cluster.AwaitThat([&] {
      const auto counts = cluster.evaluated(1);
      return counts == std::vector<int>(100, 1);
    }));
    cluster.ps(0).HoldReads(false);
    ASSERT_TRUE(cluster.Await().ok());
    ExpectConsistentSaves(cluster.notes());
    EXPECT_EQ(cluster.evaluated(1), std::vector<int>(100, 2));
    absl::MutexLock lock(&cluster.notes().mu);
    EXPECT_EQ(cluster.notes().saves.back().state.step, 40);
    EXPECT_EQ(cluster.notes().epochs.size(), 4u);
  }
}

TEST(Director, DoesNotTakeTheLastCopyForEver) {
  Job job = SavingJob();
  job.timeouts.phase[static_cast<int>(Phase::kSave)] = std::chrono::milliseconds(300);
  FakeCluster cluster({.job = job});
  cluster.ps(0).FailReads(1 << 30);
  ASSERT_TRUE(cluster.Start());
  const absl::Status status = cluster.Await();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kRetryable);
  EXPECT_NE(Message(status).find("the state after step 40 could not be saved: Read of ps 0"),
            std::string::npos)
      << Message(status);
}

TEST(Director, ALostWorkersWorkIsDoneByOthers) {
  FakeCluster cluster({.job = SmallJob(), .workers = 3, .train = 600});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 10; }));
  cluster.LoseWorker(1);
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 20; }));
  cluster.StartWorker(1);
  ASSERT_TRUE(cluster.Await().ok());
  const int64_t steps = 2 * ((600 + 6) / 7);
  ExpectStepsInOrder(cluster.notes(), steps);
  EXPECT_GE(cluster.value(0), 1200) << "what was lost on its way may be there twice";
  EXPECT_EQ(cluster.ps(0).workers().at(1), cluster.incarnation(1));
}

TEST(Director, WhoseSessionWasInterruptedHoldsWhatItHeld) {
  FakeCluster cluster({.job = SmallJob(), .train = 600});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 10; }));
  cluster.AdmitAllAgain();
  ASSERT_TRUE(cluster.Await().ok());
  ExpectStepsInOrder(cluster.notes(), 120);
  ExpectEveryExampleOnce(cluster, 2, 60);
  for (int shard = 0; shard < 2; ++shard) EXPECT_EQ(cluster.value(shard), 1200);
  EXPECT_EQ(cluster.director().record().lost_updates, 0);
}

TEST(Director, WithOneReplicaALostServerComesBackFromWhatWasReadLast) {
  FakeCluster cluster({.job = SmallJob(), .train = 600});
  cluster.notes().every_steps = 10;
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] {
    absl::MutexLock lock(&cluster.notes().mu);
    return cluster.notes().saves.size() >= 2;
  }));
  cluster.LosePs(0);
  cluster.ReturnPs(0);
  ASSERT_TRUE(cluster.Await().ok());
  ExpectStepsInOrder(cluster.notes(), 120);
  const DirectorRecord record = cluster.director().record();
  EXPECT_EQ(cluster.value(1), 1200);
  EXPECT_LE(record.lost_updates, 120 - 20) << "the second save has 20, however late the loss is";
  // Updates of 10 examples each.
  EXPECT_EQ(cluster.value(0), 1200 - 10 * record.lost_updates);
}

TEST(Director, AStateThatCannotBeReadIsOneSentence) {
  FakeCluster cluster(
      {.job = SmallJob(), .train = 600, .batch_time = std::chrono::milliseconds(20)});
  cluster.notes().every_steps = 10;
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] {
    absl::MutexLock lock(&cluster.notes().mu);
    return !cluster.notes().saves.empty();
  }));
  cluster.notes().files.SetBefore([](const checkpoint::MemoryFileSystem::Operation& operation) {
    const bool open = operation.path.find(".staging") != std::string::npos;  // since it was written
    return operation.name == "ReadAt" && open ? absl::InternalError("the disk is broken")
                                              : absl::OkStatus();
  });
  cluster.LosePs(0);
  cluster.ReturnPs(0);
  const std::string message(Message(cluster.Await()));
  EXPECT_TRUE(message.starts_with("cannot restore shard 0 as it was after step ")) << message;
  EXPECT_TRUE(message.ends_with(": the disk is broken")) << message;
}

TEST(Director, AFullDiskCostsTheCheckpointAlone) {
  FakeCluster cluster({.job = SmallJob(), .train = 600});
  cluster.notes().every_steps = 10;
  cluster.notes().files.SetCapacity(0);
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().failed >= 2; }));
  cluster.notes().files.SetCapacity(1 << 20);
  ASSERT_TRUE(cluster.Await().ok());
  ExpectStepsInOrder(cluster.notes(), 120);
  absl::MutexLock lock(&cluster.notes().mu);
  EXPECT_EQ(ValuesOf(cluster.notes().saves.back()), std::vector<double>(2, 1200));
}

TEST(Director, WhatCannotBeWrittenAtTheEndIsNoSuccess) {
  FakeCluster cluster({.job = SmallJob(), .train = 600});
  cluster.notes().files.SetCapacity(0);
  ASSERT_TRUE(cluster.Start());
  const absl::Status status = cluster.Await();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << Message(status);
  EXPECT_TRUE(Message(status).starts_with("the state after step 120 could not be saved: "));
  EXPECT_EQ(cluster.notes().failed, 1);
}

// The servers are lost alternately. A report that comes late, or a push while a shard goes back to
// a checkpoint, counts correctly.
TEST(Director, CountsExactlyWhatIsLost) {
  FakeCluster cluster({.job = SmallJob(), .workers = 4, .train = 1500});
  cluster.notes().every_steps = 20;
  ASSERT_TRUE(cluster.Start());
  for (int loss = 0; loss < 8; ++loss) {
    ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 25 * (loss + 1); }));
    cluster.LosePs(loss % 2);
    cluster.ReturnPs(loss % 2);
  }
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 230; }));
  cluster.LosePs(0);
  cluster.LosePs(1);
  cluster.ReturnPs(1);
  cluster.ReturnPs(0);
  ASSERT_TRUE(cluster.Await().ok());
  const DirectorRecord record = cluster.director().record();
  EXPECT_GT(record.lost_updates, 0);
  // Batches have 5 examples, and there are two epochs.
  const double held = cluster.value(0) + cluster.value(1);
  EXPECT_EQ(held + 5 * record.lost_updates, 2 * 2 * 1500);
}

// The first checkpoint was read but for the part of a server that had gone: nothing goes back to
// the part that came.
TEST(Director, NothingComesBackFromACheckpointThatWasNotReadWhole) {
  FakeCluster cluster({.job = SmallJob(), .train = 600});
  cluster.notes().every_steps = 10;
  cluster.ps(0).FailReads(1 << 30);
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.ps(1).reads() >= 2; }));
  cluster.LosePs(1);
  cluster.ReturnPs(1);
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.ps(1).serves(1); }));
  cluster.ps(0).FailReads(0);
  ASSERT_TRUE(cluster.Await().ok());
  const DirectorRecord record = cluster.director().record();
  EXPECT_GE(record.lost_updates, 20);
  EXPECT_EQ(cluster.value(0), 1200);
  // It went back to the beginning, and what is counted is what it lacks.
  EXPECT_EQ(cluster.value(1), 1200 - 10 * record.lost_updates);
}

TEST(Director, WithTwoReplicasTheLossOfAServerLosesNothing) {
  FakeCluster cluster({.job = SmallJob({{"copies", 2}}), .servers = 3, .train = 1200});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 10; }));
  cluster.LosePs(0);
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.ps(1).serves(0); }));
  const int64_t taken_over = cluster.notes().steps();
  ASSERT_TRUE(cluster.AwaitThat(
      [&] { return cluster.notes().steps() >= std::min<int64_t>(240, taken_over + 20); }));
  cluster.ReturnPs(0);
  ASSERT_TRUE(cluster.Await().ok());
  ExpectEveryExampleOnce(cluster, 2, 120);
  ExpectConsistentSaves(cluster.notes());
  for (int shard = 0; shard < 3; ++shard) EXPECT_EQ(cluster.value(shard), 2400);
  EXPECT_EQ(cluster.director().record().lost_updates, 0);
}

// It holds what it held: the chief alone did not reach it.
TEST(Director, AServerThatComesBackWithTheOnlyCopyLosesNothing) {
  FakeCluster cluster({.job = SmallJob(), .train = 600});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 10; }));
  cluster.CutPs(0);
  cluster.CutPs(1);
  cluster.HealPs(1);
  cluster.HealPs(0);
  ASSERT_TRUE(cluster.Await().ok());
  ExpectEveryExampleOnce(cluster, 2, 60);
  for (int shard = 0; shard < 2; ++shard) EXPECT_EQ(cluster.value(shard), 1200);
  EXPECT_EQ(cluster.director().record().lost_updates, 0);
}

TEST(Director, AServerThatWaitsForItsBackupGoesOnWithoutItUntilThatIsUpToDate) {
  FakeCluster cluster({.job = SmallJob({{"copies", 2}}), .train = 1000000});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 10; }));
  const uint64_t before = cluster.ps(0).view().number();
  cluster.ps(0).SetWaiting({{0, 0.001}});
  cluster.ps(1).SetWaiting({{1, 1e6}});
  ASSERT_TRUE(cluster.AwaitThat([&] { return !cluster.ps(1).view().shards(1).backup_in_sync(); }));
  EXPECT_GT(cluster.ps(1).view().number(), before);
  EXPECT_EQ(cluster.ps(1).view().shards(1).backup(), 0);
  EXPECT_TRUE(cluster.ps(1).view().shards(0).backup_in_sync()) << "that has not waited for long";
  for (int task : {0, 1}) cluster.ps(task).SetWaiting({});
  // Beats of before may still bring a view, in which the backup is brought up to date once more.
  ASSERT_TRUE(cluster.AwaitThat([&] {
    cluster.ps(0).Copy(1, cluster.ps(1));
    cluster.ps(1).SetSynced({1});
    const Json record = Json::parse(cluster.ps(0).record());
    return record["placements"] == Json::parse("[[0, 1, true], [1, 0, true]]");
  }));
  cluster.director().RequestStop();
  const absl::Status status = cluster.Await();
  EXPECT_TRUE(absl::IsCancelled(status)) << Message(status);
  EXPECT_EQ(cluster.director().record().lost_updates, 0);
}

// A backup is up to date before the chief hears that all have the view in which it is to be.
TEST(Director, AViewIsTheSameEachTimeItIsSent) {
  FakeCluster cluster({.job = SmallJob({{"copies", 2}}), .train = 600});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 10; }));
  cluster.LosePs(1);
  cluster.ps(1).LoseViewAnswers(true);
  cluster.ReturnPs(1);
  ASSERT_TRUE(cluster.AwaitThat([&] {
    const proto::View views[2] = {cluster.ps(0).view(), cluster.ps(1).view()};
    return views[1].number() == views[0].number() && views[1].shards(0).backup() == 1;
  }));
  for (int shard = 0; shard < 2; ++shard) cluster.ps(1).Copy(shard, cluster.ps(0));
  cluster.ps(0).SetSynced({0, 1});
  ASSERT_TRUE(cluster.AwaitThat([&] {
    const Json record = Json::parse(cluster.ps(0).record());
    return record["placements"] == Json::parse("[[0, 1, true], [0, 1, true]]");
  }));
  cluster.ps(1).LoseViewAnswers(false);
  const absl::Status status = cluster.Await();
  EXPECT_TRUE(status.ok()) << Message(status);
  EXPECT_EQ(cluster.value(0), 1200);
  EXPECT_EQ(cluster.value(1), 1200);
}

TEST(Director, ARestartedChiefGoesOnWithWhatTheServersHold) {
  for (const bool bounded : {false, true}) {
    Job job = SmallJob(bounded ? Json{{"max_staleness", 1}} : Json::object());
    FakeCluster cluster({.job = job, .train = 600, .validation = 30});
    cluster.notes().every_steps = 1000;
    ASSERT_TRUE(cluster.Start());
    ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 25; }));
    ASSERT_TRUE(cluster.AwaitThat([&] { return !cluster.ps(0).record().empty(); }));
    EXPECT_FALSE(cluster.director().MayHaveState());
    ASSERT_TRUE(cluster.RestartChief());
    EXPECT_TRUE(cluster.director().MayHaveState());
    ASSERT_TRUE(cluster.Await().ok());
    ExpectConsistentSaves(cluster.notes());
    for (int shard = 0; shard < 2; ++shard) EXPECT_EQ(cluster.value(shard), 1200) << bounded;
    ExpectEveryExampleOnce(cluster, 2, 60);
    absl::MutexLock lock(&cluster.notes().mu);
    ASSERT_EQ(cluster.notes().starts.size(), 2u);
    EXPECT_EQ(cluster.notes().step_reports.back().step, 120);
    EXPECT_EQ(cluster.notes().saves.back().state.examples, 1200);
  }
}

// Chief and servers are lost together. Workers hold leases that nobody else knows of.
TEST(Director, WhatSurvivorsHoldIsVoidIfTheServersRestart) {
  FakeCluster cluster({.job = SmallJob(), .train = 600});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 7; }));
  for (int task = 0; task < 2; ++task) cluster.LosePs(task);
  ASSERT_TRUE(cluster.RestartChief());
  for (int task = 0; task < 2; ++task) cluster.ReturnPs(task);
  const absl::Status status = cluster.Await();
  ASSERT_TRUE(status.ok()) << Message(status);
  for (int shard = 0; shard < 2; ++shard) EXPECT_EQ(cluster.value(shard), 1200);
}

TEST(Director, ARestartedChiefGoesOnWithoutAServerWhoseShardsOthersHold) {
  for (const bool stopped : {false, true}) {
    Job job = SmallJob({{"copies", 2}});
    if (stopped) job.epochs = 1000;
    job.timeouts.resume = Duration::zero();
    job.timeouts.join = job.timeouts.rejoin = std::chrono::minutes(5);
    FakeCluster cluster({.job = job, .train = 600});
    ASSERT_TRUE(cluster.Start());
    ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 20; }));
    cluster.LosePs(1);
    const int64_t before = cluster.notes().steps();
    ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= before + 10; }));
    const MonotonicTime start = Clock::now();
    ASSERT_TRUE(cluster.RestartChief());
    if (stopped) cluster.director().RequestStop();
    const absl::Status status = cluster.Await();
    EXPECT_TRUE(stopped ? absl::IsCancelled(status) : status.ok()) << Message(status);
    EXPECT_LT(Seconds(Clock::now() - start), 60) << "timeouts.join and rejoin are longer";
    ExpectConsistentSaves(cluster.notes());
    absl::MutexLock lock(&cluster.notes().mu);
    ASSERT_EQ(cluster.notes().saves.size(), 1u);
    EXPECT_GE(cluster.notes().saves[0].state.step, before + 10);
    if (!stopped) {
      EXPECT_EQ(cluster.notes().saves[0].state.step, 120);
    }
  }
}

TEST(Director, AStopIsWaitedWithForServersThatMayHoldTheRunNoLongerThanTheyMayBeAway) {
  Job job = SmallJob();
  job.epochs = 1000;
  FakeCluster cluster({.job = job});
  ASSERT_TRUE(cluster.Start());
  for (int task = 0; task < 2; ++task) {
    cluster.LosePs(task);
    cluster.LoseWorker(task);
  }
  ASSERT_TRUE(cluster.RestartChief());
  cluster.director().RequestStop();
  EXPECT_EQ(Message(cluster.Await()),
            "stopped on request before all servers came back to this chief: nothing was saved");
}

// Workers that heard of the end ask its successor for nothing.
TEST(Director, AChiefThatWasLostAtTheVeryEndIsFollowedByOneThatKnowsIt) {
  for (const bool stopped : {false, true}) {
    Job job = SmallJob();
    if (stopped) job.epochs = 1000;
    FakeCluster cluster({.job = job, .validation = 30, .test = 10});
    ASSERT_TRUE(cluster.Start());
    if (stopped) {
      ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 15; }));
      cluster.director().RequestStop();
    }
    const absl::Status first = cluster.Await();
    EXPECT_TRUE(stopped ? absl::IsCancelled(first) : first.ok()) << Message(first);
    std::optional<checkpoint::Snapshot> saved;
    {
      absl::MutexLock lock(&cluster.notes().mu);
      saved = cluster.notes().saves.back();
    }
    const auto evaluated = cluster.evaluated(2);
    ASSERT_TRUE(cluster.RestartChief(saved));
    const absl::Status second = cluster.Await();
    EXPECT_EQ(second.code(), first.code()) << Message(second);
    EXPECT_EQ(Message(second), Message(first));
    EXPECT_EQ(cluster.evaluated(2), evaluated);
    absl::MutexLock lock(&cluster.notes().mu);
    EXPECT_EQ(cluster.notes().saves.size(), 1u);
  }
}

TEST(Director, DoesNotWaitForEverForWhatAWorkerTells) {
  Job job = SmallJob();
  job.timeouts.rejoin = std::chrono::seconds(1);
  FakeCluster cluster({.job = job, .train = 600});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 20; }));
  cluster.Mute(1);
  ASSERT_TRUE(cluster.RestartChief());
  ASSERT_TRUE(cluster.Await().ok());
  EXPECT_GE(cluster.value(0), 1200);
  absl::MutexLock lock(&cluster.notes().mu);
  EXPECT_EQ(cluster.notes().step_reports.back().step, 120);
}

// Steps follow each other fast, and storing their reports takes long.
TEST(Director, ARecordIsMadeWhileStepsAreCompletedAllTheTime) {
  Job job = SmallJob();
  job.epochs = 100000;
  FakeCluster cluster({.job = job, .workers = 3, .batch_time = Duration::zero()});
  cluster.notes().flush = std::chrono::milliseconds(30);
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] {
    const std::string record = cluster.ps(0).record();
    return !record.empty() && Json::parse(record)["work"]["completed"] >= 100;
  }));
  cluster.director().RequestStop();
  EXPECT_TRUE(absl::IsCancelled(cluster.Await()));
}

TEST(Director, AProcessThatHasReplacedAServerIsNoErrorBeforeItIsKnown) {
  FakeCluster cluster({.job = SmallJob(), .train = 600});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 10; }));
  cluster.ps(1).Replace();
  // A beat or two.
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  cluster.LosePs(1);
  cluster.ReturnPs(1);
  const absl::Status status = cluster.Await();
  EXPECT_TRUE(status.ok()) << Message(status);
}

TEST(Director, GoesOnFromACheckpoint) {
  std::optional<checkpoint::Snapshot> saved;
  Job job = SmallJob();
  job.max_steps = 13;
  {
    FakeCluster cluster({.job = job, .servers = 2});
    ASSERT_TRUE(cluster.Start());
    ASSERT_TRUE(cluster.Await().ok());
    absl::MutexLock lock(&cluster.notes().mu);
    saved = cluster.notes().saves.back();
  }
  EXPECT_EQ(saved->state.step, 13);
  EXPECT_EQ(saved->state.offset, 130);
  job.max_steps.reset();
  // The run keeps its batch size, although the job now has another one.
  job.global_batch_size.reset();
  job.per_replica_batch_size = 3;
  FakeCluster cluster({.job = job, .servers = 2});
  ASSERT_TRUE(cluster.Start(1, saved));
  ASSERT_TRUE(cluster.Await().ok());
  EXPECT_EQ(cluster.batches().size(), 27u);
  for (int shard = 0; shard < 2; ++shard) EXPECT_EQ(cluster.value(shard), 400);
  ExpectConsistentSaves(cluster.notes());
}

// One worker's count is the run's, in checkpoints, and where a process begins.
TEST(Director, SavesAndRestoresIntegerBuffersOfWorkers) {
  Job job = SmallJob();
  job.max_steps = 13;
  std::optional<checkpoint::Snapshot> saved;
  {
    FakeCluster cluster({.job = job, .workers = 1, .train = 260});
    ASSERT_TRUE(cluster.Start());
    ASSERT_TRUE(cluster.Await().ok());
    absl::MutexLock lock(&cluster.notes().mu);
    saved = cluster.notes().saves.back();
  }
  EXPECT_EQ(CountOf(*saved), "00000013");
  job.max_steps = 20;
  FakeCluster cluster({.job = job, .workers = 1, .train = 260});
  ASSERT_TRUE(cluster.Start(1, saved));
  ASSERT_TRUE(cluster.Await().ok());
  absl::MutexLock lock(&cluster.notes().mu);
  EXPECT_EQ(CountOf(cluster.notes().saves.back()), "00000020");
}

TEST(Director, AWorkerThatReplacesAnotherGoesOnWithItsIntegerBuffers) {
  Job job = SmallJob();
  FakeCluster cluster(
      {.job = job, .workers = 1, .train = 600, .batch_time = std::chrono::milliseconds(3)});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 15; }));
  cluster.LoseWorker(0);
  cluster.StartWorker(0);
  ASSERT_TRUE(cluster.Await().ok());
  absl::MutexLock lock(&cluster.notes().mu);
  EXPECT_EQ(CountOf(cluster.notes().saves.back()), "00000060") << "reported with each batch";
}

// The worker that counted is lost together with the chief.
TEST(Director, ARestartedChiefKnowsIntegerBuffersOfLostWorkers) {
  Job job = SmallJob();
  FakeCluster cluster(
      {.job = job, .workers = 1, .train = 800, .batch_time = std::chrono::milliseconds(20)});
  ASSERT_TRUE(cluster.Start());
  int counted = 0;
  ASSERT_TRUE(cluster.AwaitThat([&] {
    const std::string record = cluster.ps(0).record();
    const auto known = ChiefRecordOf(record);
    if (record.empty() || !known.ok() || !known->integers) return false;
    const auto count = known->integers->find("net.count");
    counted = count == known->integers->end() ? 0 : std::stoi(count->second);
    return counted >= 40;
  }));
  cluster.LoseWorker(0);
  ASSERT_TRUE(cluster.RestartChief());
  cluster.StartWorker(0);
  ASSERT_TRUE(cluster.Await().ok());
  absl::MutexLock lock(&cluster.notes().mu);
  const int saved = std::stoi(CountOf(cluster.notes().saves.back()));
  EXPECT_GE(saved, 50) << "of 80 batches: those of the last record, and all since; without it 40";
  EXPECT_LE(saved, 82);
}

TEST(ChiefRecordText, KeepsIntegersOfAnyBytes) {
  ChiefRecord record;
  record.work = Json::object();
  EXPECT_FALSE(ChiefRecordOf(ToText(record))->integers.has_value());
  record.integers = {{"net.a", std::string("\0\xff\x10z", 4)}, {"net.b", ""}};
  EXPECT_EQ(ChiefRecordOf(ToText(record))->integers, record.integers);
  for (const char* bad : {"0", "0g", "+1"}) {
    Json json = Json::parse(ToText(record));
    json["integers"]["net.a"] = bad;
    EXPECT_TRUE(absl::IsDataLoss(ChiefRecordOf(json.dump()).status())) << bad;
  }
}

TEST(Director, RefusesAWorkerOfAnotherLayoutAndAnUnknownOne) {
  Job job = SmallJob();
  job.epochs = 1000;
  FakeCluster cluster({.job = job});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 1; }));
  const auto stub = proto::Leases::NewStub(*rpc::MakeChannel(cluster.leases_address()));
  proto::NextRequest request;
  request.mutable_worker()->set_worker(0);
  request.mutable_worker()->set_incarnation(cluster.incarnation(0));
  request.set_digest("other");
  proto::VariableMessage& variable = *request.add_variables();
  variable.set_name("net.v0");
  variable.add_shape(5);
  proto::NextReply reply;
  grpc::Status status =
      stub->Next(rpc::WithDeadline(std::chrono::minutes(1)).get(), request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("the variables of worker 0 are not the chief's: "),
            std::string::npos)
      << status.error_message();
  EXPECT_NE(status.error_message().find("[5]"), std::string::npos) << status.error_message();
  request.mutable_worker()->set_incarnation(1);
  status = stub->Next(rpc::WithDeadline(std::chrono::minutes(1)).get(), request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  grpc::ClientContext endless;
  EXPECT_EQ(stub->Next(&endless, request, &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  cluster.director().Abort(ProgramError("enough"));
  EXPECT_EQ(Message(cluster.Await()), "enough");
}

}  // namespace
}  // namespace muster::chief::testing
