#include "chief/leases/training_leases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chief/leases/evaluation_pass.h"
#include "tests/unit/leases/crew.h"

namespace muster::chief {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TrainingLeases::Options TenBatches() { return Asynchronous(100, 10); }

TrainingLeases::Options Bounded(int64_t max_staleness) {
  TrainingLeases::Options options = TenBatches();
  options.max_staleness = max_staleness;
  return options;
}

proto::NextRequest Request(int worker, const std::vector<int64_t>& held = {}, int want = 1) {
  proto::NextRequest request;
  request.mutable_worker()->set_worker(worker);
  request.mutable_held()->Assign(held.begin(), held.end());
  request.set_want(want);
  return request;
}

proto::BatchDone Done(int64_t id) {
  proto::BatchDone done;
  done.set_lease(id);
  done.set_examples(10);
  done.set_loss(0.5);
  done.add_metric_sums(1);
  return done;
}

// All leases of the answer, or none.
std::vector<proto::Lease> Offered(TrainingLeases* table, const proto::NextRequest& request) {
  proto::NextReply reply;
  std::string reason;
  if (!table->Offer(request, &reply, &reason)) {
    EXPECT_FALSE(reply.has_lease());
    EXPECT_NE(reason, "");
    return {};
  }
  EXPECT_EQ(reason, "");
  std::vector<proto::Lease> leases = {reply.lease()};
  leases.insert(leases.end(), reply.more().begin(), reply.more().end());
  return leases;
}

// REQUIRES: there is one.
proto::Lease OneOffered(TrainingLeases* table, const proto::NextRequest& request) {
  std::vector<proto::Lease> leases = Offered(table, request);
  EXPECT_EQ(leases.size(), 1u);
  return leases.empty() ? proto::Lease() : leases.front();
}

std::string WhyNone(TrainingLeases* table, const proto::NextRequest& request) {
  proto::NextReply reply;
  std::string reason;
  EXPECT_FALSE(table->Offer(request, &reply, &reason));
  return reason;
}

std::vector<int64_t> Ids(const std::vector<Lease>& leases) {
  std::vector<int64_t> ids;
  for (const Lease& lease : leases) ids.push_back(lease.id);
  return ids;
}

// ---- What workers are offered

TEST(TrainingLeases, ALeaseSaysWhatIsTrainedWithWhat) {
  TrainingLeases table(Asynchronous(25, 10, 2), {});
  table.SetRates({{"adam", 0.25}});
  table.Join(0);
  const std::vector<proto::Lease> leases = Offered(&table, Request(0, {}, 3));
  ASSERT_EQ(leases.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(leases[i].id(), i + 1);
    EXPECT_EQ(leases[i].begin(), 10 * i);
    EXPECT_EQ(leases[i].end(), i == 2 ? 25 : 10 * i + 10);
    EXPECT_EQ(leases[i].steps(), i);
    EXPECT_EQ(leases[i].pull(), i == 0) << "one pull is enough for an answer";
    EXPECT_EQ(leases[i].training().epoch(), 0);
    EXPECT_FALSE(leases[i].training().wait());
    EXPECT_EQ(leases[i].training().learning_rates().at("adam"), 0.25);
    EXPECT_FALSE(leases[i].summary()) << "no summary is due";
  }
  for (int i = 0; i < 3; ++i) table.Take(0, Done(i + 1));
  table.SetRates({{"adam", 0.125}});
  const proto::Lease next = OneOffered(&table, Request(0));
  EXPECT_EQ(next.id(), 4);
  EXPECT_EQ(next.begin(), 0);
  EXPECT_EQ(next.training().epoch(), 1);
  EXPECT_EQ(next.training().learning_rates().at("adam"), 0.125);
}

TEST(TrainingLeases, WhatARunResumesFromIsItsPlace) {
  checkpoint::TrainingState state;
  state.step = 13;
  state.epoch = 1;
  state.offset = 30;
  state.examples = 130;
  TrainingLeases table(Asynchronous(100, 10, 3), state);
  const checkpoint::TrainingState at = table.state();
  EXPECT_EQ(at.step, 13);
  EXPECT_EQ(at.epoch, 1);
  EXPECT_EQ(at.offset, 30);
  EXPECT_EQ(at.examples, 130);
  const proto::Lease lease = OneOffered(&table, Request(0));
  EXPECT_EQ(lease.id(), 14);
  EXPECT_EQ(lease.steps(), 13);
  EXPECT_EQ(lease.training().epoch(), 1);
  EXPECT_EQ(lease.begin(), 30);
  EXPECT_EQ(table.state().offset, 40) << "that of the next new lease";
  EXPECT_EQ(table.state().step, 13);
  EXPECT_EQ(table.leases().completed(), 13);
}

TEST(TrainingLeases, AnAnswerHasNoMoreThanAWorkerCanUse) {
  TrainingLeases table(Asynchronous(10'000, 10), {});
  EXPECT_EQ(Offered(&table, Request(0, {}, 100)).size(), 16u);
  EXPECT_EQ(Offered(&table, Request(1, {}, 2)).size(), 2u);
  TrainingLeases few(Asynchronous(30, 10), {});
  EXPECT_EQ(Offered(&few, Request(0, {}, 100)).size(), 3u) << "there are no more";
  TrainingLeases gated(Asynchronous(1000, 10), {});
  gated.set_gate({.steps = 5});
  EXPECT_EQ(Offered(&gated, Request(0, {}, 100)).size(), 5u) << "the step that is to be saved";
  TrainingLeases bounded(Bounded(4), {});
  EXPECT_EQ(Offered(&bounded, Request(0, {}, 100)).size(), 1u) << "the next one may have to wait";
}

TEST(TrainingLeases, AnswersHaveFewerLeasesBeforeTheWorkersWaitForEachOther) {
  const auto sizes = [](TrainingLeases* table) {
    for (const int worker : {0, 1}) table->Join(worker);
    std::vector<size_t> sizes;
    for (;;) {
      const std::vector<proto::Lease> leases = Offered(table, Request(0, {}, 100));
      if (leases.empty()) return sizes;
      sizes.push_back(leases.size());
      for (const proto::Lease& lease : leases) {
        EXPECT_EQ(lease.training().epoch(), 0);
        table->Take(0, Done(lease.id()));
      }
      if (table->leases().ToRecord().epoch > 0) return sizes;
    }
  };
  TrainingLeases epoch(Asynchronous(200, 10), {});
  EXPECT_THAT(sizes(&epoch), ElementsAre(5, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1));
  TrainingLeases::Options limited = Asynchronous(1000, 10);
  limited.leases.max_steps = 12;
  TrainingLeases run(limited, {});
  EXPECT_THAT(sizes(&run), ElementsAre(3, 2, 1, 1, 1, 1, 1, 1, 1));
  TrainingLeases save(Asynchronous(1000, 10), {});
  save.set_gate({.steps = 12});  // Every 12th step is saved.
  EXPECT_THAT(sizes(&save), ElementsAre(3, 2, 1, 1, 1, 1, 1, 1, 1));
}

TEST(TrainingLeases, AWorkerHasOneLeaseAhead) {
  TrainingLeases table(TenBatches(), {});
  EXPECT_EQ(OneOffered(&table, Request(0)).id(), 1);
  EXPECT_EQ(OneOffered(&table, Request(0, {1})).id(), 2);
  EXPECT_EQ(WhyNone(&table, Request(0, {1, 2})), "two leases are enough");
  EXPECT_EQ(Ids(table.held_by(0)), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(table.held_by(1).empty());
  EXPECT_TRUE(table.Holds(0, 2));
  EXPECT_FALSE(table.Holds(1, 2));
  EXPECT_FALSE(table.Holds(0, 3));
  table.Take(0, Done(1));
  EXPECT_EQ(OneOffered(&table, Request(0, {2})).id(), 3);
}

TEST(TrainingLeases, AnAnswerThatWasLostIsGivenAgainWithAPull) {
  TrainingLeases table(TenBatches(), {});
  ASSERT_EQ(Offered(&table, Request(0, {}, 3)).size(), 3u);
  const proto::Lease second = OneOffered(&table, Request(0, {1, 3}, 3));
  EXPECT_EQ(second.id(), 2) << "and nothing new before";
  EXPECT_TRUE(second.pull());
  const std::vector<proto::Lease> all = Offered(&table, Request(0, {}, 3));
  ASSERT_EQ(all.size(), 3u) << "all in one answer";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(all[i].id(), i + 1);
    EXPECT_EQ(all[i].steps(), i);
    EXPECT_EQ(all[i].pull(), i == 0) << "one pull is enough";
  }
  EXPECT_EQ(table.leases().ToRecord().repeated, 0) << "the worker never lost it";
}

TEST(TrainingLeases, WhoMustPullDoesSoOnce) {
  TrainingLeases table(TenBatches(), {});
  const auto pulls = [&table](int worker) {
    const proto::Lease lease = OneOffered(&table, Request(worker));
    table.Take(worker, Done(lease.id()));
    return lease.pull();
  };
  for (const int worker : {0, 1}) {
    table.Join(worker);
    EXPECT_TRUE(pulls(worker));
    EXPECT_FALSE(pulls(worker));
  }
  table.Join(0);
  EXPECT_TRUE(pulls(0)) << "another process";
  EXPECT_FALSE(pulls(1));
  table.PullAll();
  EXPECT_TRUE(pulls(0));
  EXPECT_TRUE(pulls(1));
  EXPECT_FALSE(pulls(0));
}

TEST(TrainingLeases, OneStepOfEachFewIsToBeShown) {
  TrainingLeases::Options options = TenBatches();
  options.summary_every_steps = 3;
  TrainingLeases table(options, {});
  std::vector<int64_t> shown;
  for (const proto::Lease& lease : Offered(&table, Request(0, {}, 10)))
    if (lease.summary()) shown.push_back(lease.steps() + 1);
  EXPECT_THAT(shown, ElementsAre(3, 6, 9));
}

TEST(TrainingLeases, AGateIsAChangeOnce) {
  TrainingLeases table(TenBatches(), {});
  const uint64_t before = table.changes();
  table.set_gate({});
  EXPECT_EQ(table.changes(), before) << "it was so";
  table.set_gate({.closed = true});
  EXPECT_TRUE(table.gate().closed);
  const uint64_t closed = table.changes();
  EXPECT_GT(closed, before);
  EXPECT_EQ(WhyNone(&table, Request(0)), "leases out are waited for");
  EXPECT_TRUE(table.none_open());
  table.set_gate({.closed = true});
  EXPECT_EQ(table.changes(), closed);
  table.set_gate({.steps = 2});
  EXPECT_GT(table.changes(), closed);
  EXPECT_EQ(Offered(&table, Request(0, {}, 8)).size(), 2u);
  EXPECT_EQ(WhyNone(&table, Request(1)), "step 2 is to be saved");
}

// ---- What they have done

TEST(TrainingLeases, ALeaseCountsOnceAndOnlyForItsHolder) {
  TrainingLeases table(TenBatches(), {});
  for (const int worker : {0, 1}) table.Join(worker);
  OneOffered(&table, Request(0));
  OneOffered(&table, Request(1));
  table.Take(1, Done(1));  // of worker 0
  table.Take(0, Done(3));  // not given out
  table.Take(0, Done(0));
  EXPECT_FALSE(table.has_completed());
  EXPECT_TRUE(table.TakeCompleted().empty());
  EXPECT_EQ(table.state().step, 0);
  EXPECT_TRUE(table.Holds(0, 1));

  table.Take(1, Done(2));
  table.Take(0, Done(1));
  table.Take(0, Done(1));
  EXPECT_TRUE(table.has_completed());
  const std::vector<CompletedStep> steps = table.TakeCompleted();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].step, 1);
  EXPECT_EQ(steps[0].worker, 1) << "in the order of completion";
  EXPECT_EQ(steps[1].step, 2);
  EXPECT_EQ(steps[1].worker, 0);
  EXPECT_FALSE(table.has_completed());
  EXPECT_TRUE(table.TakeCompleted().empty());
  EXPECT_EQ(table.state().examples, 20);
  EXPECT_EQ(table.state().epoch_loss_sum, 10);
  EXPECT_EQ(table.state().epoch_metric_sums, std::vector<double>{2});
  EXPECT_EQ(table.steps().staleness().size(), 2u);
  EXPECT_TRUE(table.none_open());
}

// Waiting calls are tried again only after a change.
TEST(TrainingLeases, ACompletedLeaseIsAChangeIfSomebodyMayHaveWaitedForIt) {
  TrainingLeases table(TenBatches(), {});
  for (const int worker : {0, 1}) {
    table.Join(worker);
    Offered(&table, Request(worker, {}, 2));
  }
  uint64_t before = table.changes();
  table.Take(0, Done(1));
  EXPECT_EQ(table.changes(), before) << "worker 1 is as slow as before";
  table.Take(1, Done(3));
  EXPECT_GT(table.changes(), before) << "no worker is at 0 now";
  before = table.changes();
  table.Lose(1, false);
  table.Join(1);
  table.Take(1, Done(4));
  EXPECT_EQ(table.changes(), before) << "it is not its own any more";
  table.Take(0, Done(2));
  EXPECT_GT(table.changes(), before) << "the last one, for which an epoch's end may wait";
}

TEST(TrainingLeases, APushToAShardThatWentBackIsLost) {
  TrainingLeases::Options options = TenBatches();
  options.shards = 2;
  checkpoint::TrainingState state;
  state.step = 4;
  state.offset = 40;
  TrainingLeases table(options, state);
  Offered(&table, Request(0, {}, 2));
  const auto done = [](int64_t id, uint64_t first, uint64_t second) {
    proto::BatchDone batch = Done(id);
    batch.add_views(first);
    batch.add_views(second);
    return batch;
  };
  table.Take(0, done(5, 1, 1));
  EXPECT_EQ(table.ledger().lost(), 0);
  EXPECT_EQ(table.ledger().Restore(1, 4, 2, /*steps=*/4), 1) << "the step that it resumed from";
  table.Take(0, done(6, 2, 2));
  const TrainingLeases& same = table;
  EXPECT_EQ(same.ledger().lost(), 2) << "acknowledged before, reported afterwards";
  EXPECT_EQ(table.state().step, 6) << "and yet a step";
}

// ---- Losses

TEST(TrainingLeases, ALostWorkersLeasesAreAnothers) {
  TrainingLeases table(TenBatches(), {});
  for (const int worker : {0, 1}) table.Join(worker);
  Offered(&table, Request(0, {}, 2));
  EXPECT_TRUE(table.Lose(0, /*unreported=*/false));
  EXPECT_EQ(table.torn_pushes(), 1) << "one push at a time, for any number of leases";
  EXPECT_TRUE(table.has_returned());
  EXPECT_FALSE(table.none_open());
  EXPECT_TRUE(table.held_by(0).empty());
  table.Take(0, Done(1));
  EXPECT_FALSE(table.has_completed());
  const proto::Lease again = OneOffered(&table, Request(1));
  EXPECT_EQ(again.id(), 1);
  EXPECT_TRUE(again.pull());
  EXPECT_EQ(table.leases().repeated_examples(), 10);
  EXPECT_EQ(OneOffered(&table, Request(1, {1})).id(), 2);
  EXPECT_FALSE(table.has_returned());
}

TEST(TrainingLeases, OnlyAPushThatMayHaveBegunIsTorn) {
  TrainingLeases table(Bounded(1), {});
  for (const int worker : {0, 1}) table.Join(worker);
  EXPECT_FALSE(table.Lose(0, /*unreported=*/false)) << "it held nothing";
  EXPECT_FALSE(table.Lose(7, /*unreported=*/false)) << "there is no such worker";
  EXPECT_EQ(table.torn_pushes(), 0);
  EXPECT_FALSE(table.Lose(0, /*unreported=*/true));
  EXPECT_EQ(table.torn_pushes(), 1) << "of a lease that the record may lack";
  // Worker 0 may push two batches before worker 1 has pushed any; the third has to wait.
  table.Join(0);
  for (int64_t id : {1, 2}) {
    EXPECT_FALSE(OneOffered(&table, Request(0)).training().wait());
    table.Take(0, Done(id));
  }
  EXPECT_TRUE(OneOffered(&table, Request(0)).training().wait());
  EXPECT_FALSE(table.Lose(0, /*unreported=*/false)) << "it has not begun";
  EXPECT_TRUE(table.has_returned());
  EXPECT_EQ(table.torn_pushes(), 1);
}

TEST(TrainingLeases, ThoseThatAreOutstandingAreAdded) {
  TrainingLeases table(TenBatches(), {});
  std::set<int> workers = {7};
  EXPECT_FALSE(table.AddOutstanding(&workers));
  EXPECT_EQ(workers, (std::set<int>{7}));
  EXPECT_TRUE(table.none_open());
  for (const int worker : {0, 1, 2}) OneOffered(&table, Request(worker));
  EXPECT_FALSE(table.none_open());
  table.Take(1, Done(2));
  EXPECT_FALSE(table.AddOutstanding(&workers));
  EXPECT_EQ(workers, (std::set<int>{0, 2, 7}));
  table.Lose(0, false);
  workers.clear();
  EXPECT_TRUE(table.AddOutstanding(&workers)) << "no worker holds the lease of worker 0";
  EXPECT_EQ(workers, (std::set<int>{2}));
  table.Take(2, Done(3));
  EXPECT_FALSE(table.none_open());
}

// ---- Under a bound

TEST(TrainingLeases, ALeaseStartsOnceTheSlowestHasCaughtUp) {
  TrainingLeases table(Bounded(1), {});
  for (const int worker : {0, 1}) table.Join(worker);
  OneOffered(&table, Request(1));  // lease 1
  OneOffered(&table, Request(0));
  table.Take(0, Done(2));
  OneOffered(&table, Request(0));
  const proto::Lease ahead = OneOffered(&table, Request(0, {3}));
  EXPECT_EQ(ahead.id(), 4);
  EXPECT_TRUE(ahead.training().wait());
  proto::NextRequest start = Request(0, {3, 4}, 0);
  start.set_start(3);
  EXPECT_EQ(table.Start(start), "") << "batch 2 may be 1 ahead";
  start.set_start(4);
  const uint64_t before = table.changes();
  EXPECT_EQ(table.Start(start), "worker 1 is too far behind (max_staleness 1)");
  EXPECT_EQ(table.changes(), before) << "it was known to wait";
  table.Take(0, Done(3));
  start = Request(0, {4}, 0);
  start.set_start(4);
  EXPECT_NE(table.Start(start), "") << "a batch of its own does not help it";
  table.Take(1, Done(1));
  const uint64_t caught_up = table.changes();
  EXPECT_EQ(table.Start(start), "");
  EXPECT_EQ(table.changes(), caught_up) << "no other worker may start more";
  EXPECT_TRUE(table.Lose(0, false)) << "it may have begun";
}

TEST(TrainingLeases, ALostWorkerHoldsNobodyUp) {
  TrainingLeases table(Bounded(1), {});
  for (const int worker : {0, 1}) table.Join(worker);
  for (const int64_t id : {1, 2}) {
    OneOffered(&table, Request(0));
    table.Take(0, Done(id));
  }
  EXPECT_TRUE(OneOffered(&table, Request(0)).training().wait());
  proto::NextRequest start = Request(0, {3}, 0);
  start.set_start(3);
  EXPECT_NE(table.Start(start), "");
  table.Lose(1, false);
  EXPECT_EQ(table.Start(start), "");
}

// A restarted chief does not know which of them waited: workers say so.
TEST(TrainingLeases, ALeaseThatTurnsOutToWaitIsAChange) {
  TrainingLeases table(Bounded(1), {});
  for (const int worker : {0, 1}) table.Join(worker);
  for (const int64_t id : {1, 2}) {
    OneOffered(&table, Request(0));
    table.Take(0, Done(id));
  }
  ASSERT_TRUE(table.Adopt(0, 3));
  EXPECT_FALSE(table.held_by(0).front().waits);
  proto::NextRequest start = Request(0, {3}, 0);
  start.set_start(3);
  const uint64_t before = table.changes();
  EXPECT_NE(table.Start(start), "");
  EXPECT_TRUE(table.held_by(0).front().waits);
  const uint64_t known = table.changes();
  EXPECT_GT(known, before) << "another worker may get it now";
  EXPECT_NE(table.Start(start), "");
  EXPECT_EQ(table.changes(), known);
}

TEST(TrainingLeases, TheSlowestGetsALeaseThatWaitsForIt) {
  TrainingLeases::Options options = Asynchronous(30, 10);
  options.max_staleness = 1;
  TrainingLeases table(options, {});
  for (const int worker : {0, 1}) table.Join(worker);
  for (const int64_t id : {1, 2}) {
    OneOffered(&table, Request(0));
    table.Take(0, Done(id));
  }
  EXPECT_TRUE(OneOffered(&table, Request(0)).training().wait());
  EXPECT_EQ(WhyNone(&table, Request(0, {3})), "1 of the last leases are out");
  const uint64_t before = table.changes();
  const proto::Lease moved = OneOffered(&table, Request(1));
  EXPECT_EQ(moved.id(), 3);
  EXPECT_FALSE(moved.training().wait());
  EXPECT_GT(table.changes(), before) << "worker 0 has to drop it";
  EXPECT_FALSE(table.Holds(0, 3));
  EXPECT_TRUE(table.Holds(1, 3));
}

// ---- After a restart of the chief

TEST(TrainingLeases, AReportedLeaseIsTheReportersUnlessItIsKnown) {
  TrainingLeases table(TenBatches(), {});
  for (const int worker : {0, 1}) table.Join(worker);
  OneOffered(&table, Request(0));
  OneOffered(&table, Request(0, {1}));
  table.Take(0, Done(1));
  EXPECT_TRUE(table.Adopt(1, 4));
  EXPECT_TRUE(table.Holds(1, 4));
  EXPECT_TRUE(table.has_returned()) << "3 was given out, too";
  EXPECT_TRUE(table.Adopt(1, 3));
  EXPECT_TRUE(table.Holds(1, 3));
  EXPECT_FALSE(table.has_returned());
  EXPECT_TRUE(table.Adopt(1, 2));
  EXPECT_TRUE(table.Holds(0, 2)) << "it has a worker";
  EXPECT_TRUE(table.Adopt(1, 1));
  EXPECT_FALSE(table.Holds(1, 1)) << "it is complete";
  EXPECT_EQ(table.leases().ToRecord().repeated, 0) << "each worker still holds its own";
  EXPECT_EQ(OneOffered(&table, Request(0, {2})).id(), 5);
}

TEST(TrainingLeases, WhatIsNoLeaseOfTheRunIsNobodys) {
  TrainingLeases table(TenBatches(), {});
  EvaluationPass pass({.split = 1, .examples = 10, .batch = 10});
  proto::Lease part;
  ASSERT_EQ(pass.Offer(Request(0), &part), "");
  for (const int64_t id : {int64_t{-1}, int64_t{0}, int64_t{11}, part.id()}) {
    EXPECT_FALSE(table.Adopt(0, id)) << id;
    table.Reach(id);
    EXPECT_TRUE(table.none_open()) << id;
  }
  EXPECT_TRUE(table.Adopt(0, 10)) << "the last one";
}

TEST(TrainingLeases, WhatServersHaveSeenWasGivenOut) {
  TrainingLeases table(TenBatches(), {});
  table.Reach(2);
  EXPECT_EQ(Ids({table.leases().returned().begin(), table.leases().returned().end()}),
            (std::vector<int64_t>{1, 2}));
  table.Reach(1);
  EXPECT_EQ(table.leases().returned().size(), 2u);
  EXPECT_EQ(OneOffered(&table, Request(0)).id(), 1);
  EXPECT_EQ(table.leases().ToRecord().repeated, 1);
}

// The record of a run with every kind of state.
class TrainingRecord : public ::testing::Test {
 protected:
  TrainingRecord() {
    options_.shards = 2;
    table_ = std::make_unique<TrainingLeases>(options_, checkpoint::TrainingState());
    table_->Join(0);
    Offered(table_.get(), Request(0, {}, 3));
    table_->Join(1);
    OneOffered(table_.get(), Request(1));
    proto::BatchDone done = Done(1);
    done.add_views(1);
    done.add_views(1);
    done.set_staleness_max(2);
    table_->Take(0, done);
    table_->ledger().Restore(1, 0, 2, 1);
    table_->Lose(0, false);  // Leases 2 and 3 come back.
  }
  // Reads the record into another table.
  absl::Status Read(const Json& record) {
    next_ = std::make_unique<TrainingLeases>(options_, checkpoint::TrainingState());
    return next_->Read(record);
  }

  TrainingLeases::Options options_ = TenBatches();
  std::unique_ptr<TrainingLeases> table_, next_;
};

TEST_F(TrainingRecord, HasAllThatARestartedChiefNeeds) {
  const Json record = Json::parse(table_->ToRecord(/*recovering=*/true).dump());
  ASSERT_TRUE(Read(record).ok());
  EXPECT_EQ(next_->ToRecord(/*recovering=*/true), record);
  EXPECT_EQ(next_->state().step, 1);
  EXPECT_EQ(next_->state().offset, 40);
  EXPECT_EQ(next_->state().examples, 10);
  EXPECT_EQ(next_->state().epoch_loss_sum, 5);
  EXPECT_EQ(next_->torn_pushes(), 1);
  EXPECT_EQ(next_->ledger().lost(), 1);
  EXPECT_EQ(next_->steps().staleness().at(0).max, 2);
  EXPECT_FALSE(next_->has_completed()) << "its chief has reported them";
  EXPECT_EQ(Ids({next_->leases().returned().begin(), next_->leases().returned().end()}),
            (std::vector<int64_t>{2, 3, 4}))
      << "until their workers report";
}

// They are given to others soon, perhaps before the next record.
TEST_F(TrainingRecord, CountsWhatCameBackAsRepeatedUnlessItsWorkerMayReportIt) {
  ASSERT_TRUE(Read(table_->ToRecord(/*recovering=*/false)).ok());
  EXPECT_EQ(next_->leases().ToRecord().repeated, 2);
  EXPECT_EQ(next_->leases().repeated_examples(), 20);
  ASSERT_TRUE(Read(table_->ToRecord(/*recovering=*/true)).ok());
  EXPECT_EQ(next_->leases().ToRecord().repeated, 0);
  EXPECT_EQ(next_->leases().repeated_examples(), 0);
  EXPECT_EQ(table_->leases().ToRecord().repeated, 0) << "which changes nothing in the table";
}

TEST_F(TrainingRecord, OfAnotherJobIsRefused) {
  const Json record = table_->ToRecord(false);
  const std::string batch = "was made with another batch size";
  const std::string epochs = "is of other epochs than this job's";
  const std::string integers = "holds numbers that are no integers";
  const std::string unreadable = "the servers' record of leases cannot be read: ";
  const struct {
    std::string place;
    Json value;
    std::string error;
  } cases[] = {
      {"/batch", 20, batch},
      {"/epoch", -1, epochs},
      {"/epoch", int64_t{1} << 31, epochs},
      {"/offset", -10, epochs},
      {"/offset", 100, epochs},
      {"/offset", 50, epochs},  // The next lease would be another one.
      {"/next_id", 6, epochs},
      {"/completed", -1, epochs},
      {"/examples", -1, epochs},
      {"/repeated", -1, epochs},
      {"/repeated_examples", -1, epochs},
      {"/open/0", {0, 0, 20, 30}, epochs},
      {"/open/0", {5, 0, 20, 30}, epochs},  // It was not given out.
      {"/open/0", {3, -1, 20, 30}, epochs},
      {"/open/0", {3, 1, 20, 30}, epochs},
      {"/open/0", {3, 0, -1, 30}, epochs},
      {"/open/0", {3, 0, 20, 20}, epochs},
      {"/open/0", {3, 0, 20, 101}, epochs},
      {"/open/0", {3, 0, 20}, unreadable},
      {"/open", 7, unreadable},
      {"/completed", "one", unreadable},
      {"/torn_pushes", 0.5, unreadable},
      {"/epoch_metric_sums", {1, 2}, "was made with other metrics"},
      {"/ledger/shards/0/0", 1.5, integers},
      {"/ledger/shards", Json::array({{1, 0, 0}}), unreadable},  // of one server
  };
  for (const auto& one : cases) {
    Json other = record;
    other[Json::json_pointer(one.place)] = one.value;
    const absl::Status status = Read(other);
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kDataDamaged) << one.place << one.value;
    EXPECT_THAT(std::string(Message(status)),
                AllOf(HasSubstr("the servers' record of "), HasSubstr(one.error)))
        << one.place << one.value;
  }
  // Such places have ids that fit.
  for (const Json& place :
       {Json{{"epoch", -1}, {"next_id", -5}}, Json{{"offset", -10}, {"next_id", 0}},
        Json{{"offset", 100}, {"next_id", 11}},
        Json{{"epoch", int64_t{1} << 31}, {"next_id", (int64_t{10} << 31) + 5}}}) {
    Json other = record;
    other["open"] = Json::array();
    other.update(place);
    EXPECT_THAT(std::string(Message(Read(other))), HasSubstr(epochs)) << place;
  }
  for (const auto& [key, value] : record.items()) {
    Json less = record;
    less.erase(key);
    const bool may_lack = key == "torn_pushes" || key == "refused_pushes";  // of chiefs of before
    EXPECT_EQ(Read(less).ok(), may_lack) << key;
  }
  for (const Json& none : {Json(), Json(3), Json::array()})
    EXPECT_THAT(std::string(Message(Read(none))), HasSubstr(unreadable));
  EXPECT_TRUE(Read(record).ok());
  Json last = record;
  last["open"][0] = {4, 0, 90, 100};
  EXPECT_TRUE(Read(last).ok()) << "the last examples of an epoch";
}

}  // namespace
}  // namespace muster::chief
