#include "chief/leases/work_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <random>

#include "chief/leases/chief_record.h"
#include "common/checkpoint/state/callback_record.h"
#include "tests/unit/leases/crew.h"

namespace muster::chief {
namespace {

// Schedules and seeds go by it: leases are given ahead, and each is another step.
TEST(WorkTable, ALeaseThatIsGivenAheadHasItsOwnStep) {
  WorkTable table(Asynchronous(100, 10), checkpoint::TrainingState{.epoch_metric_sums = {0}});
  Crew crew(&table, 1);
  std::deque<Reply> held = {crew.Next(0), crew.Next(0)};
  for (int64_t step = 0; step < 8; ++step) {
    EXPECT_EQ(held.front().lease().steps(), step);
    crew.Finish(0, held.front());
    held.pop_front();
    held.push_back(crew.Next(0));
    ASSERT_EQ(held.back().answer_case(), Reply::kLease);
  }
}

TEST(WorkTable, StepsAreCountedInTheOrderOfCompletion) {
  WorkTable table(Asynchronous(25, 10), {});
  Crew crew(&table, 3);
  const Reply first = crew.Next(0), second = crew.Next(1), third = crew.Next(2);
  EXPECT_TRUE(first.lease().pull()) << "a new worker has no parameters";
  EXPECT_EQ(third.lease().end() - third.lease().begin(), 5);
  EXPECT_EQ(crew.Next(0).answer_case(), Reply::kWait) << "the epoch is leased out";
  crew.Finish(2, third);
  crew.Next(2);
  crew.Finish(0, first);
  crew.Next(0);
  crew.Finish(1, second);
  crew.Next(1);
  const auto steps = table.TakeCompleted();
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].step, 1);
  EXPECT_EQ(steps[0].examples, 5);
  EXPECT_FALSE(steps[1].epoch_end);
  EXPECT_TRUE(steps[2].epoch_end);
  EXPECT_TRUE(steps[2].all_done);
  EXPECT_EQ(steps[2].epoch_examples, 25);
  EXPECT_EQ(steps[2].epoch_metric_sums, std::vector<double>{30});
  EXPECT_DOUBLE_EQ(steps[2].epoch_loss_sum, 12.5);
  EXPECT_EQ(table.staleness().at(1).max, 3);
  EXPECT_TRUE(table.between_steps());
}

TEST(WorkTable, AnEpochsMeanOfWhatWorkersReportCountsWeightsOrExamples) {
  WorkTable table(Asynchronous(25, 10), {});
  Crew crew(&table, 2);
  const std::vector<double> weights = {4, 0, 1};
  for (int64_t i = 0; i < 3; ++i) {
    crew.Finish(0, crew.Next(0));
    proto::BatchDone& done = crew.LastDone(0);
    (*done.mutable_values())["by examples"] = static_cast<double>(i);
    (*done.mutable_values())["by weights"] = static_cast<double>(i);
    (*done.mutable_value_weights())["by weights"] = weights[i];
  }
  crew.Next(0);
  const auto steps = table.TakeCompleted();
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_DOUBLE_EQ(steps[2].epoch_values.at("by examples").mean(), (10 + 2 * 5) / 25.0);
  EXPECT_DOUBLE_EQ(steps[2].epoch_values.at("by weights").mean(), 2 / 5.0);
}

TEST(WorkTable, SkippedStepsOfAllWorkersAreCountedAndSurviveARestart) {
  const WorkTable::Options options = Asynchronous(100, 10);
  checkpoint::TrainingState start;
  start.extras.skipped.total = 5;
  WorkTable table(options, start);
  Crew crew(&table, 2);
  for (int i = 0; i < 4; ++i) {
    const int worker = i % 2;
    crew.Finish(worker, crew.Next(worker));
    crew.LastDone(worker).set_loss_scale(worker == 0 ? 64 : 32);
    crew.LastDone(worker).set_skipped(i != 2);
    crew.Next(worker);
  }
  const auto steps = table.TakeCompleted();
  ASSERT_EQ(steps.size(), 4u);
  const int64_t counts[] = {6, 7, 7, 8};
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(steps[i].loss_scale.has_value());
    EXPECT_EQ(steps[i].loss_scale->skipped_steps, counts[i]);
    EXPECT_EQ(steps[i].loss_scale->skipped, i != 2);
    EXPECT_EQ(steps[i].loss_scale->scale, i % 2 == 0 ? 64 : 32);
  }
  EXPECT_EQ(table.state().extras.skipped.total, 8);
  const auto after = WorkTable::FromRecord(options, Json::parse(table.ToRecord().dump()));
  ASSERT_TRUE(after.ok()) << Message(after.status());
  EXPECT_EQ((*after)->state().extras.skipped.total, 8);
}

TEST(WorkTable, PushesThatWereRefusedAreCountedAndSurviveARestart) {
  const WorkTable::Options options = Asynchronous(100, 10);
  WorkTable table(options, {});
  Crew crew(&table, 2);
  for (int i = 0; i < 4; ++i) {
    const int worker = i % 2;
    crew.Finish(worker, crew.Next(worker));
    if (i != 2) crew.LastDone(worker).add_not_finite("net.w");
    if (i == 3) crew.LastDone(worker).add_not_finite("rows");
    crew.Next(worker);
  }
  const auto steps = table.TakeCompleted();
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps[1].refused_pushes, 2);
  EXPECT_TRUE(steps[2].not_finite.empty());
  EXPECT_EQ(steps[3].refused_pushes, 3);
  EXPECT_EQ(steps[3].not_finite, (std::vector<std::string>{"net.w", "rows"}));
  EXPECT_EQ(table.refused_pushes(), 3);
  Json record = Json::parse(table.ToRecord().dump());
  auto after = WorkTable::FromRecord(options, record);
  ASSERT_TRUE(after.ok()) << Message(after.status());
  EXPECT_EQ((*after)->refused_pushes(), 3);
  record.erase("refused_pushes");  // of a chief of before
  after = WorkTable::FromRecord(options, record);
  ASSERT_TRUE(after.ok()) << Message(after.status());
  EXPECT_EQ((*after)->refused_pushes(), 0);
}

TEST(WorkTable, ALossOfAPassWithWeightsIsDividedByThemWhereAPartHasNone) {
  WorkTable table(Asynchronous(10, 10), {});
  Crew crew(&table, 1);
  crew.Finish(0, crew.Next(0));
  crew.Next(0);
  table.StartPass(1, 20, 5);
  bool first = true;
  for (;;) {
    const Reply part = crew.Next(0);
    if (!part.has_lease()) break;
    crew.Finish(0, part);
    if (!first) crew.LastEvaluated(0).set_loss_weights(2);
    first = false;
  }
  ASSERT_TRUE(table.pass());
  ASSERT_GT(table.pass()->total, 1);
  EXPECT_EQ(table.pass()->done, table.pass()->total);
  EXPECT_EQ(table.pass()->loss_divisor, 2 * static_cast<double>(table.pass()->total - 1));
}

TEST(WorkTable, AReportThatComesTwiceCountsOnce) {
  WorkTable table(Asynchronous(40, 10), {});
  Crew crew(&table, 1);
  const Reply first = crew.Next(0);
  crew.Finish(0, first);
  proto::NextRequest twice = crew.request(0);
  twice.mutable_worker()->set_worker(0);
  EXPECT_TRUE(table.Take(twice).ok());
  EXPECT_TRUE(table.Take(twice).ok());
  EXPECT_EQ(table.steps(), 1);
  proto::NextRequest wrong = twice;
  wrong.mutable_done(0)->add_metric_sums(1);
  EXPECT_EQ(Message(table.Take(wrong)),
            "worker 0 tells 2 sums of metrics, the chief's program has 1: start all tasks with one "
            "program");
}

TEST(WorkTable, AnAnswerThatDidNotArriveIsGivenAgain) {
  WorkTable table(Asynchronous(40, 10), {});
  Crew crew(&table, 2);
  const Reply first = crew.Next(0);
  crew.Forget(0);  // it never got it
  const Reply again = crew.Next(0);
  EXPECT_EQ(again.lease().id(), first.lease().id());
  EXPECT_TRUE(again.lease().pull());
  EXPECT_EQ(table.repeated_examples(), 0) << "it is the same worker's";
  const Reply ahead = crew.Next(0);
  EXPECT_NE(ahead.lease().id(), first.lease().id()) << "one is fetched ahead";
  EXPECT_FALSE(ahead.lease().pull());
  EXPECT_EQ(crew.Next(0).answer_case(), Reply::kWait) << "but no more";
}

TEST(WorkTable, OfShortBatchesSeveralAreGivenAtOnce) {
  WorkTable table(Asynchronous(120, 10), {});
  Crew crew(&table, 2);
  const Reply first = crew.Next(0, /*want=*/3);
  ASSERT_EQ(first.more_size(), 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(first.more(i).id(), first.lease().id() + 1 + i);
    EXPECT_EQ(first.more(i).steps(), 1 + i) << "each has its own step";
  }
  EXPECT_EQ(crew.Next(0, 3).answer_case(), Reply::kWait) << "three are enough";
  table.set_gate({.steps = 5});
  EXPECT_EQ(crew.Next(1, 8).more_size(), 0) << "the step that is to be saved comes first";
  EXPECT_EQ(crew.Next(1, 8).lease().id(), 5);
  EXPECT_EQ(crew.Next(0, 8).answer_case(), Reply::kWait);
  table.set_gate({});
  table.LoseWorker(1);
  EXPECT_EQ(table.repeated_examples(), 0);
  proto::NextRequest& request = crew.request(0);
  for (const int64_t id : request.held()) {
    Reply lease;
    lease.mutable_lease()->set_id(id);
    lease.mutable_lease()->set_end(10);
    *request.add_done() = Crew::Done(lease);
  }
  request.clear_held();
  const Reply rest = crew.Next(0, 8);
  EXPECT_EQ(table.steps(), 3);
  EXPECT_EQ(rest.more_size(), 7);
  EXPECT_EQ(rest.lease().id(), 4) << "what came back first";
  EXPECT_EQ(table.repeated_examples(), 20);
}

TEST(WorkTable, UnderABoundLeasesAreGivenOneByOne) {
  WorkTable::Options options = Asynchronous(120, 10);
  options.max_staleness = 4;
  WorkTable table(options, {});
  Crew crew(&table, 2);
  EXPECT_EQ(crew.Next(0, 3).more_size(), 0);
}

TEST(WorkTable, ALostWorkersLeasesAreAnothersAndItIsNotified) {
  WorkTable table(Asynchronous(40, 10), {});
  Crew crew(&table, 2);
  const Reply first = crew.Next(0);
  table.LoseWorker(0);
  EXPECT_FALSE(table.Knows(0, 100));
  EXPECT_EQ(crew.Next(1).lease().id(), first.lease().id());
  EXPECT_EQ(table.repeated_examples(), 10);
  table.SetWorker(0, 100, false);  // the same process
  EXPECT_TRUE(table.Abandoned(0));
  const Reply lost = crew.Next(0);
  ASSERT_EQ(lost.answer_case(), Reply::kLost);
  EXPECT_EQ(lost.lost().leases(0), first.lease().id());
  EXPECT_FALSE(table.Abandoned(0));
  EXPECT_EQ(crew.Next(0).answer_case(), Reply::kLease);
}

// The place of a lease decides whether its pictures are wanted, not its worker or the number of
// times that it was leased. It is not known how much of its lease a lost worker has pushed.
TEST(WorkTable, ALossWithALeaseIsATornPushThatSurvivesARestart) {
  const WorkTable::Options options = Asynchronous(100, 10);
  WorkTable table(options, {});
  Crew crew(&table, 3);
  crew.Next(0);
  crew.Next(0);
  crew.Finish(1, crew.Next(1));
  crew.Next(1, /*want=*/0);
  table.LoseWorker(1);
  EXPECT_EQ(table.torn_pushes(), 0) << "it had nothing under way";
  table.LoseWorker(0);
  EXPECT_EQ(table.torn_pushes(), 1) << "one push at a time";
  table.SetWorker(0, 100, false);
  Crew again(&table, 1);
  again.Next(0);
  table.LoseWorker(0);
  EXPECT_EQ(table.torn_pushes(), 2) << "the same process, lost once more";
  auto restarted = WorkTable::FromRecord(options, table.ToRecord());
  ASSERT_TRUE(restarted.ok()) << restarted.status();
  EXPECT_EQ((*restarted)->torn_pushes(), 2);
}

// Waiting calls are tried again only after a change, so that the work of an event does not grow
// with their number.
TEST(WorkTable, NoChangeMeansThatAWaitingCallIsAnsweredAsBefore) {
  WorkTable::Options options = Asynchronous(2000, 10, 2);
  options.max_staleness = 1;
  WorkTable table(options, {});
  Crew crew(&table, 4);
  std::map<int, std::deque<Reply>> held;
  std::mt19937 random(7);
  int without_change = 0;
  table.set_gate({false, std::nullopt, 0});
  for (int event = 0; event < 20000 && !table.all_done(); ++event) {
    const auto answer = [&](int worker) {
      Reply reply;
      table.Answer(crew.request(worker), "", &reply);
      return reply.answer_case();
    };
    const int worker = static_cast<int>(random() % 10 == 0 ? 3 : random() % 3);  // 3 is slow
    std::vector<int> waiting;
    for (int other = 0; other < 4; ++other)
      if (other != worker && crew.request(other).has_worker() && held[other].size() == 1 &&
          answer(other) == Reply::kWait)
        waiting.push_back(other);
    const uint64_t before = table.changes();
    if (!held[worker].empty() && random() % 2 == 0) {
      crew.Finish(worker, held[worker].front());
      held[worker].pop_front();
    }
    const Reply reply = crew.Next(worker);
    if (reply.has_lease()) held[worker].push_back(reply);
    if (table.between_steps()) table.set_gate({false, std::nullopt, table.state().epoch});
    if (table.changes() != before) continue;
    for (const int other : waiting) {
      ++without_change;
      EXPECT_EQ(answer(other), Reply::kWait) << event;
    }
  }
  EXPECT_TRUE(table.all_done());
  EXPECT_GT(without_change, 50);
}

TEST(WorkTable, OneLeaseOfEachFewIsToBeShown) {
  WorkTable::Options options = Asynchronous(100, 10);
  options.summary_every_steps = 3;
  WorkTable table(options, {});
  Crew crew(&table, 2);
  const Reply first = crew.Next(0), second = crew.Next(1), third = crew.Next(1);
  EXPECT_FALSE(first.lease().summary());
  EXPECT_FALSE(second.lease().summary());
  EXPECT_TRUE(third.lease().summary());
  crew.Forget(1);
  const Reply again = crew.Next(1);
  EXPECT_FALSE(again.lease().summary()) << "the second one again";
  ASSERT_EQ(again.more_size(), 1);
  EXPECT_TRUE(again.more(0).summary()) << "the third one again";
  table.LoseWorker(1);
  crew.Finish(0, first);
  EXPECT_FALSE(crew.Next(0).lease().summary());
  EXPECT_TRUE(crew.Next(0).lease().summary()) << "a lost worker's takes its pictures along";
}

TEST(WorkTable, WhatIsShownGoesWithItsStep) {
  WorkTable::Options options = Asynchronous(100, 10);
  options.summary_every_steps = 2;
  WorkTable table(options, {});
  Crew crew(&table, 2);
  for (int64_t step = 1; step <= 4; ++step) {
    const int worker = static_cast<int>(step / 2 % 2);
    const Reply lease = crew.Next(worker);
    EXPECT_EQ(lease.lease().summary(), step % 2 == 0);
    proto::NextRequest request;
    request.mutable_worker()->set_worker(worker);
    proto::BatchDone& done = *request.add_done() = Crew::Done(lease);
    if (lease.lease().summary()) {
      proto::Shown::Histogram& histogram = *done.mutable_shown()->add_histograms();
      histogram.set_tag("numbers");
      histogram.add_limits(1);
      EXPECT_EQ(ExitCodeOf(table.Take(request)), ExitCode::kConfiguration);
      histogram.add_counts(1);
    }
    EXPECT_TRUE(table.Take(request).ok());
    crew.Forget(worker);
    const auto steps = table.TakeCompleted();
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_EQ(steps[0].shown.histograms_size(), step % 2 == 0 ? 1 : 0);
  }
}

TEST(WorkTable, APassIsMadeOnceAndAgainWhereAWorkerIsLost) {
  WorkTable table(Asynchronous(40, 10), {});
  Crew crew(&table, 3);
  table.StartPass(1, 95, 10);
  std::mt19937 random(3);
  std::map<int, Reply> held;
  std::vector<int> counts(95);
  bool lost = false;
  while (table.pass()->done < table.pass()->total) {
    const int worker = static_cast<int>(random() % 3);
    if (held.contains(worker)) {
      if (!lost && worker == 1) {
        table.LoseWorker(1);
        table.SetWorker(1, 900, false);
        crew.Forget(1);
        lost = true;
      } else {
        const Reply& lease = held.at(worker);
        for (int64_t i = lease.lease().begin(); i < lease.lease().end(); ++i) ++counts[i];
        crew.Finish(worker, lease);
        crew.Next(worker, false);
      }
      held.erase(worker);
    } else if (const Reply reply = crew.Next(worker); reply.has_lease()) {
      EXPECT_EQ(reply.lease().evaluation().split(), 1);
      held.emplace(worker, reply);
    }
  }
  EXPECT_TRUE(lost);
  EXPECT_EQ(counts, std::vector<int>(95, 1));
  EXPECT_EQ(table.pass()->sums[0], 190);
  EXPECT_EQ(table.pass()->sums[1], 95);
  EXPECT_EQ(table.pass()->loss_divisor, 95);
  EXPECT_TRUE(table.between_steps()) << "a pass changes nothing";
  table.CancelPass();
  EXPECT_FALSE(table.pass());
  table.SetDone();
  EXPECT_EQ(crew.Next(2).answer_case(), Reply::kDone);
}

TEST(WorkTable, APartIsItsWorkersUntilThePassEnds) {
  WorkTable table(Asynchronous(40, 10), {});
  table.StartPass(1, 40, 10);
  Crew crew(&table, 1);
  const Reply first = crew.Next(0), second = crew.Next(0);
  ASSERT_EQ(first.answer_case(), Reply::kLease);
  ASSERT_EQ(second.answer_case(), Reply::kLease) << "the first one is not lost";
  EXPECT_NE(second.lease().id(), first.lease().id());
  table.CancelPass();
  const Reply lost = crew.Next(0);
  ASSERT_EQ(lost.answer_case(), Reply::kLost);
  EXPECT_EQ(std::vector<int64_t>(lost.lost().leases().begin(), lost.lost().leases().end()),
            (std::vector<int64_t>{first.lease().id(), second.lease().id()}));
}

// After a chief was lost at any point, with a record of any age, no work is done twice that workers
// still know of.
TEST(WorkTable, ARestartedChiefHearsWhatItsRecordDoesNotKnow) {
  for (int seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    const WorkTable::Options options = Asynchronous(205, 10, 2);
    auto table = std::make_unique<WorkTable>(options, checkpoint::TrainingState());
    auto crew = std::make_unique<Crew>(table.get(), 3);
    std::map<std::pair<int64_t, int64_t>, int> counts;  // by epoch and begin
    std::map<int, std::vector<Reply>> held;
    std::map<int, std::vector<proto::BatchDone>> history;
    Json record = table->ToRecord();
    const int recorded = 10 + seed % 7, killed = recorded + seed % 12;
    for (int i = 0; !table->all_done(); ++i) {
      if (i == recorded) record = Json::parse(table->ToRecord().dump());
      if (i == killed) {
        table = *WorkTable::FromRecord(options, record);
        for (int w = 0; w < 3; ++w) table->SetWorker(w, 100 + w, true);
        table->FinishRecovery();
        for (int w = 0; w < 3; ++w) {
          proto::NextRequest first;
          first.mutable_worker()->set_worker(w);
          for (const auto& done : history[w]) *first.add_done() = done;
          for (const Reply& lease : held[w]) first.add_held(lease.lease().id());
          first.set_want(0);
          ASSERT_TRUE(table->Take(first).ok());
          Reply reply;
          EXPECT_EQ(table->Answer(first, "", &reply), w == 2) << "until all were heard";
        }
        crew = std::make_unique<Crew>(table.get(), 3);
        for (int w = 0; w < 3; ++w)
          for (const Reply& lease : held[w])
            const_cast<proto::NextRequest&>(crew->request(w)).add_held(lease.lease().id());
      }
      const int worker = static_cast<int>(random() % 3);
      if (!held[worker].empty() && random() % 2 == 0) {
        const Reply lease = held[worker].front();
        held[worker].erase(held[worker].begin());
        ++counts[{lease.lease().training().epoch(), lease.lease().begin()}];
        crew->Finish(worker, lease);
        history[worker].push_back(Crew::Done(lease));
        crew->Next(worker, false);
      } else if (const Reply reply = crew->Next(worker); reply.has_lease()) {
        held[worker].push_back(reply);
      } else {
        ASSERT_NE(reply.answer_case(), Reply::kLost);
      }
    }
    EXPECT_EQ(counts.size(), 42u) << seed;
    for (const auto& [place, count] : counts) EXPECT_EQ(count, 1) << seed;
    EXPECT_EQ(table->steps(), 42);
    EXPECT_EQ(table->repeated_examples(), 0);
    EXPECT_EQ(table->state().examples, 410);
  }
}

TEST(WorkTable, NumbersThatAreNotFiniteSurviveARestart) {
  const WorkTable::Options options = Asynchronous(100, 10);
  for (const double loss : {std::nan(""), HUGE_VAL, -HUGE_VAL, 0.1}) {
    WorkTable before(options, {});
    Crew crew(&before, 1);
    proto::NextRequest request;
    *request.add_done() = Crew::Done(crew.Next(0));
    request.mutable_done(0)->set_loss(loss);
    request.mutable_done(0)->set_metric_sums(0, -loss);
    request.mutable_done(0)->set_staleness_mean(loss);
    ASSERT_TRUE(before.Take(request).ok());
    const auto after = WorkTable::FromRecord(options, Json::parse(before.ToRecord().dump()));
    ASSERT_TRUE(after.ok()) << Message(after.status());
    const checkpoint::TrainingState expected = before.state(), state = (*after)->state();
    const auto same = [](double a, double b) { return a == b || (a != a && b != b); };
    EXPECT_TRUE(same(state.epoch_loss_sum, expected.epoch_loss_sum)) << state.epoch_loss_sum;
    EXPECT_TRUE(same(state.epoch_metric_sums[0], -loss)) << state.epoch_metric_sums[0];
    EXPECT_TRUE(same((*after)->staleness().at(0).sum, loss));
  }
}

// One value after the other is replaced by something else.
TEST(ChiefRecord, WhatNoChiefWroteIsOneSentence) {
  const WorkTable::Options options = Asynchronous(100, 10);
  WorkTable table(options, {});
  Crew crew(&table, 2);
  crew.Finish(0, crew.Next(0));
  crew.Next(0);
  crew.Next(1);
  ChiefRecord record{.view = 7, .placements = {{0, 1, true}, {1, -1, false}}, .workers = {{0, 5}}};
  record.work = table.ToRecord();
  record.ended = "stopped";
  const auto read = ChiefRecordOf(ToText(record));
  ASSERT_TRUE(read.ok()) << Message(read.status());
  EXPECT_EQ(ToText(*read), ToText(record));
  EXPECT_EQ(read->placements, record.placements);
  EXPECT_EQ(read->ended, "stopped");
  const Json whole = Json::parse(ToText(record)), flat = whole.flatten();
  int refused = 0, refused_work = 0;
  for (const auto& [place, value] : flat.items()) {
    for (const Json& other :
         {Json(), Json("x"), Json(-1), Json(1e300), Json::array(), Json(true)}) {
      Json damaged = whole;
      damaged[Json::json_pointer(place)] = other;
      const auto outer = ChiefRecordOf(damaged.dump());
      if (!outer.ok()) {
        ++refused;
        EXPECT_EQ(ExitCodeOf(outer.status()), ExitCode::kDataDamaged);
        continue;
      }
      if (const auto work = WorkTable::FromRecord(options, outer->work); !work.ok()) {
        ++refused_work;
        EXPECT_EQ(ExitCodeOf(work.status()), ExitCode::kDataDamaged);
      }
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(refused_work, 50);
  for (const char* text : {"", "{", "[]", "null", "7", "{\"work\": 3}"})
    EXPECT_FALSE(ChiefRecordOf(text).ok()) << text;
  for (const Json& work : {Json(), Json(3), Json::array(), Json::object()})
    EXPECT_FALSE(WorkTable::FromRecord(options, work).ok());
}

TEST(ChiefRecord, ANewerViewCountsForMoreThanMoreSteps) {
  ChiefRecord older{.view = 1}, newer{.view = 2};
  older.work = {{"completed", 9}};
  newer.work = {{"completed", 4}};
  EXPECT_TRUE(IsNewer(newer, older));
  EXPECT_FALSE(IsNewer(older, newer));
  newer.view = 1;
  EXPECT_TRUE(IsNewer(older, newer));
  EXPECT_FALSE(IsNewer(older, older));
  // The end is recorded without another step.
  ChiefRecord ended = older;
  ended.ended = "";
  EXPECT_TRUE(IsNewer(ended, older));
  EXPECT_FALSE(IsNewer(older, ended));
}

TEST(ChiefRecord, WhatCallbacksDecidedBetweenTwoStepsCounts) {
  std::vector<ChiefRecord> records(5, ChiefRecord{.view = 1, .work = {{"completed", 9}}});
  checkpoint::CallbackRecord callbacks;
  callbacks.epochs_begun = 1;
  records[1].callbacks = checkpoint::ToJson(callbacks);
  callbacks.epochs_ended = 1;
  records[2].callbacks = checkpoint::ToJson(callbacks);
  callbacks.epochs_begun = 2;
  records[3].callbacks = checkpoint::ToJson(callbacks);
  callbacks.ended = true;
  records[4].callbacks = checkpoint::ToJson(callbacks);
  for (size_t older = 0; older < records.size(); ++older) {
    for (size_t newer = 0; newer < records.size(); ++newer)
      EXPECT_EQ(IsNewer(records[newer], records[older]), newer > older) << newer << " " << older;
  }
}

// A worker that did not report its leases for so long that others got them begins again.
TEST(WorkTable, WhoIsHeardNoLongerForgetsWhatItHas) {
  const WorkTable::Options options = Asynchronous(100, 10);
  WorkTable first(options, {});
  first.SetWorker(0, 7, false);
  first.SetWorker(1, 8, false);
  auto restarted = WorkTable::FromRecord(options, first.ToRecord());
  ASSERT_TRUE(restarted.ok()) << restarted.status();
  WorkTable& table = **restarted;
  table.SetWorker(0, 7, true);
  table.SetWorker(1, 8, true);
  EXPECT_FALSE(table.Abandoned(0));
  table.AbandonRecovery();
  EXPECT_TRUE(table.Abandoned(0));
  EXPECT_TRUE(table.Abandoned(1));
  proto::NextRequest request;
  request.mutable_worker()->set_worker(0);
  request.mutable_worker()->set_incarnation(7);
  ASSERT_TRUE(table.Take(request).ok());
  EXPECT_FALSE(table.Abandoned(0));
  EXPECT_TRUE(table.HasSeen(1, 8));
  EXPECT_FALSE(table.HasSeen(1, 9));
}

}  // namespace
}  // namespace muster::chief
