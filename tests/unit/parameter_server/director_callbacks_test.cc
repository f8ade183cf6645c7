// A chief with callbacks: what becomes of their end where servers, or the chief itself, are lost.
#include <atomic>

#include "chief/leases/chief_record.h"
#include "chief/parameter_server/director/director.h"
#include "tests/unit/parameter_server/fake_cluster.h"

namespace muster::chief::testing {
namespace {

constexpr int64_t kEpoch = 20;  // steps of 10 examples each

Job LongJob(const Json& parameter_server = Json::object()) {
  Job job;
  job.program = "fake";
  job.global_batch_size = 20;
  job.epochs = 1000;
  job.parameter_server = parameter_server;
  job.timeouts.join = job.timeouts.rejoin = std::chrono::seconds(30);
  job.timeouts.phase[static_cast<int>(Phase::kSave)] = std::chrono::seconds(20);
  return job;
}

// Keeps the weights after these epochs (from 1), stops training after `last`, and puts them back.
std::shared_ptr<FakeCallbacks> StopsEarly(const std::set<int64_t>& keeps, int64_t last) {
  auto callbacks = std::make_shared<FakeCallbacks>();
  callbacks->on_hook = [keeps, last](Hook hook, const CallbackMoment& moment,
                                     CallbackDecision* decision) {
    checkpoint::CallbackRecord& record = decision->record;
    if (hook == Hook::kEpochEnd && keeps.contains(moment.epoch + 1)) {
      decision->weights.emplace_back("keep", "one");
      record.kept["one"] = moment.step;
    }
    if (hook == Hook::kEpochEnd && moment.epoch + 1 == last) record.stop = "one: enough";
    if (hook == Hook::kTrainEnd && record.kept.contains("one")) {
      record.weights_of = record.kept["one"];
      record.notes["one"] = {{"best", 1}, {"restored_from_step", record.weights_of}};
    }
  };
  return callbacks;
}

bool RecordsTheEnd(const FakePs& ps) {
  const auto record = ChiefRecordOf(ps.record());
  return record.ok() && record->callbacks.is_object() && record->callbacks.value("ended", false);
}

// Until training has had its end, the servers know, and what is to be saved of it is being read.
// The chief is lost then; the next one begins with what was saved before.
void LoseTheChiefAtTheEnd(FakeCluster& cluster, FakeCallbacks& callbacks) {
  const auto hook = callbacks.on_hook;
  callbacks.on_hook = [&cluster, hook](Hook at, const CallbackMoment& moment,
                                       CallbackDecision* decision) {
    if (at == Hook::kTrainEnd) cluster.ps(0).HoldReads(true);
    hook(at, moment, decision);
  };
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat(
      [&] { return RecordsTheEnd(cluster.ps(0)) && RecordsTheEnd(cluster.ps(1)); }));
  std::optional<checkpoint::Snapshot> saved;
  {
    absl::MutexLock lock(&cluster.notes().mu);
    if (!cluster.notes().saves.empty()) saved = cluster.notes().saves.back();
    cluster.notes().callbacks.clear();
  }
  ASSERT_TRUE(cluster.RestartChief(std::move(saved)));
  cluster.ps(0).HoldReads(false);
  const absl::Status status = cluster.Await();
  EXPECT_TRUE(status.ok()) << Message(status);
  EXPECT_EQ(callbacks.Count(Hook::kTrainEnd), 1);
}

TEST(DirectorCallbacks, TheEndIsSavedByTheSuccessorOfAChiefThatWasLostBeforeItWas) {
  const auto callbacks = StopsEarly({1}, 2);
  FakeCluster cluster({.job = LongJob(), .test = 30, .callbacks = callbacks});
  cluster.notes().every_steps = kEpoch;
  ASSERT_NO_FATAL_FAILURE(LoseTheChiefAtTheEnd(cluster, *callbacks));
  absl::MutexLock lock(&cluster.notes().mu);
  ASSERT_EQ(cluster.notes().saves.size(), 3u);
  const checkpoint::Snapshot& before = cluster.notes().saves[1];
  const checkpoint::Snapshot& last = cluster.notes().saves[2];
  EXPECT_EQ(before.state.step, 2 * kEpoch);
  EXPECT_FALSE(before.state.extras.callbacks->ended);
  EXPECT_EQ(last.state.step, 2 * kEpoch);
  EXPECT_TRUE(last.state.extras.callbacks->ended);
  EXPECT_TRUE(last.state.extras.finished);
  EXPECT_TRUE(last.replaces);
  EXPECT_EQ(last.state.extras.callbacks->weights_of, kEpoch);
  EXPECT_EQ(ValuesOf(last), std::vector<double>(2, 200)) << "those after the first epoch";
  EXPECT_EQ(last.state.extras.callbacks->steps_ended, 2 * kEpoch);
  EXPECT_EQ(cluster.notes().callbacks["one"]["restored_from_step"], kEpoch) << "for result.json";
  EXPECT_GE(callbacks->Count(Hook::kPassEnd), 1) << "of the test, which belongs to the end";
}

TEST(DirectorCallbacks, NoOtherWeightsArePutBackThanThoseOfTheRecord) {
  for (const bool saved : {false, true}) {
    const auto callbacks = StopsEarly({1, 2}, 3);
    FakeCluster cluster({.job = LongJob(), .callbacks = callbacks});
    // The checkpoint of the second epoch's last step holds what was kept after the first.
    cluster.notes().every_steps = saved ? 2 * kEpoch : 0;
    ASSERT_NO_FATAL_FAILURE(LoseTheChiefAtTheEnd(cluster, *callbacks));
    absl::MutexLock lock(&cluster.notes().mu);
    const checkpoint::Snapshot& last = cluster.notes().saves.back();
    EXPECT_EQ(last.state.step, 3 * kEpoch);
    EXPECT_EQ(ValuesOf(last), std::vector<double>(2, 600)) << "the servers'";
    EXPECT_EQ(last.state.extras.callbacks->weights_of, 0);
    EXPECT_EQ(last.state.extras.callbacks->notes.at("one"), Json({{"best", 1}}));
    EXPECT_EQ(cluster.notes().callbacks["one"], Json({{"best", 1}}));
  }
}

TEST(DirectorCallbacks, WeightsThatServersHaveAreNotLostWithAChief) {
  const auto callbacks = StopsEarly({1, 2}, 2);
  FakeCluster cluster({.job = LongJob(), .callbacks = callbacks});
  ASSERT_NO_FATAL_FAILURE(LoseTheChiefAtTheEnd(cluster, *callbacks));
  absl::MutexLock lock(&cluster.notes().mu);
  ASSERT_EQ(cluster.notes().saves.size(), 1u);
  const checkpoint::Snapshot& last = cluster.notes().saves.back();
  EXPECT_EQ(last.state.extras.callbacks->weights_of, 2 * kEpoch);
  EXPECT_EQ(last.state.extras.callbacks->kept.at("one"), 2 * kEpoch);
  EXPECT_TRUE(last.kept.contains("one"));
  EXPECT_EQ(ValuesOf(last), std::vector<double>(2, 400));
}

TEST(DirectorCallbacks, ACopyThatCannotBeReadEndsTheJob) {
  for (const bool at_the_end : {false, true}) {
    const auto callbacks = StopsEarly({1}, 1);
    Job job = LongJob();
    job.timeouts.phase[static_cast<int>(Phase::kSave)] = std::chrono::milliseconds(300);
    FakeCluster cluster({.job = job, .callbacks = callbacks});
    if (at_the_end) {
      const auto hook = callbacks->on_hook;
      callbacks->on_hook = [&cluster, hook](Hook at, const CallbackMoment& moment,
                                            CallbackDecision* decision) {
        if (at == Hook::kTrainEnd) cluster.ps(0).FailReads(1 << 30);
        hook(at, moment, decision);
      };
    } else {
      cluster.ps(0).FailReads(1 << 30);  // what callbacks are to see at the epoch's end
    }
    ASSERT_TRUE(cluster.Start());
    const absl::Status status = cluster.Await();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kRetryable) << at_the_end;
    EXPECT_NE(Message(status).find("the state after step 20 could not be saved: Read of ps 0"),
              std::string::npos)
        << Message(status);
  }
}

TEST(DirectorCallbacks, ACopyIsReadAgainForThem) {
  const auto callbacks = StopsEarly({1}, 1);
  FakeCluster cluster({.job = LongJob(), .callbacks = callbacks});
  cluster.ps(0).FailReads(2);
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.Await().ok());
  EXPECT_EQ(callbacks->Count(Hook::kEpochEnd), 1);
}

}  // namespace
}  // namespace muster::chief::testing
