#include "chief/leases/lease_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>

namespace muster::chief {
namespace {

using State = LeaseTable::State;

// How often each example of each epoch was in a completed lease.
class Tally {
 public:
  Tally(int64_t epochs, int64_t examples) : counts_(epochs, std::vector<int>(examples)) {}
  void Add(const Lease& lease) {
    for (int64_t i = lease.begin; i < lease.end; ++i) ++counts_[lease.epoch][i];
  }
  bool AllOnce() const {
    for (const auto& epoch : counts_)
      for (const int count : epoch)
        if (count != 1) return false;
    return true;
  }

 private:
  std::vector<std::vector<int>> counts_;
};

TEST(LeaseTable, EachExampleOnceAtEverySpeedOfWorkers) {
  LeaseTable table({.examples = 103, .batch = 10, .epochs = 3});
  Tally tally(3, 103);
  std::mt19937 random(1);
  std::map<int, Lease> held;
  while (!table.done()) {
    const int worker = static_cast<int>(random() % 4);
    if (const auto found = held.find(worker); found != held.end()) {
      EXPECT_TRUE(table.Complete(worker, found->second.id));
      tally.Add(found->second);
      held.erase(found);
      continue;
    }
    const auto answer = table.Next(worker);
    if (answer.state == State::kLeased) held[worker] = answer.lease;
  }
  EXPECT_TRUE(tally.AllOnce());
  EXPECT_EQ(table.completed(), 33);
  EXPECT_EQ(table.examples(), 309);
  EXPECT_EQ(table.ToRecord().repeated, 0);
  EXPECT_EQ(table.Next(0).state, State::kDone);
  EXPECT_EQ(table.completed_epoch(), 2);
}

TEST(LeaseTable, ALostWorkersBatchIsLeasedAgain) {
  LeaseTable table({.examples = 30, .batch = 10});
  const Lease first = table.Next(0).lease, second = table.Next(1).lease;
  EXPECT_EQ(table.Lose(1), 1);
  EXPECT_EQ(table.Lose(0), 1);
  EXPECT_EQ(table.Lose(0), 0);
  EXPECT_FALSE(table.Complete(0, first.id)) << "it came too late";
  const auto again = table.Next(2);
  EXPECT_EQ(again.lease.id, first.id) << "the oldest first";
  EXPECT_TRUE(again.lease.again);
  EXPECT_EQ(table.Next(0).lease.id, second.id);
  const Lease third = table.Next(1).lease;
  EXPECT_FALSE(third.again);
  EXPECT_EQ(table.Next(3).state, State::kWait) << "the worker that holds the last ones may be lost";
  EXPECT_TRUE(table.Complete(2, first.id));
  EXPECT_FALSE(table.Complete(2, first.id));
  EXPECT_TRUE(table.Complete(0, second.id));
  EXPECT_FALSE(table.done());
  EXPECT_TRUE(table.Complete(1, third.id));
  EXPECT_TRUE(table.done());
  EXPECT_EQ(table.ToRecord().repeated, 2);
  EXPECT_EQ(table.completed(), 3);
}

TEST(LeaseTable, NoMoreIsLeasedThanMaxStepsAllows) {
  LeaseTable table({.examples = 100, .batch = 10, .epochs = 100, .max_steps = 13});
  int64_t leased = 0;
  for (int round = 0; round < 5; ++round) {
    std::vector<Lease> held;
    for (int worker = 0; worker < 4; ++worker)
      if (const auto answer = table.Next(worker); answer.state == State::kLeased) {
        held.push_back(answer.lease);
        ++leased;
      } else {
        break;
      }
    for (size_t worker = 0; worker < held.size(); ++worker)
      EXPECT_TRUE(table.Complete(static_cast<int>(worker), held[worker].id));
  }
  EXPECT_EQ(leased, 13);
  EXPECT_TRUE(table.done());
}

TEST(LeaseTable, AnEpochsEndIsWaitedForWhereSomethingIsDueThere) {
  LeaseTable table({.examples = 15, .batch = 10, .epochs = 2});
  const Lease first = table.Next(0).lease, second = table.Next(1).lease;
  EXPECT_EQ(second.examples(), 5);
  EXPECT_EQ(table.Next(2).state, State::kWait);
  EXPECT_TRUE(table.Complete(0, first.id));
  EXPECT_EQ(table.Next(0).state, State::kWait);
  EXPECT_EQ(table.completed_epoch(), -1);
  EXPECT_TRUE(table.Complete(1, second.id));
  EXPECT_EQ(table.completed_epoch(), 0);
  EXPECT_EQ(table.Next(2).lease.epoch, 1);
}

TEST(LeaseTable, ARecordHoldsAllThatIsNotCompleted) {
  const LeaseTable::Options options{.examples = 95, .batch = 10, .epochs = 2};
  std::mt19937 random(5);
  for (int cut = 0; cut < 20; ++cut) {
    LeaseTable table(options);
    Tally tally(2, 95);
    std::map<int, Lease> held;
    for (int i = 0; !table.done(); ++i) {
      if (i == cut) {
        // All processes die, and their leases are free.
        table = LeaseTable::FromRecord(options, table.ToRecord());
        held.clear();
      }
      const int worker = static_cast<int>(random() % 3);
      if (const auto found = held.find(worker); found != held.end()) {
        ASSERT_TRUE(table.Complete(worker, found->second.id));
        tally.Add(found->second);
        held.erase(found);
      } else if (const auto answer = table.Next(worker); answer.state == State::kLeased) {
        held[worker] = answer.lease;
      }
    }
    EXPECT_TRUE(tally.AllOnce()) << cut;
    EXPECT_EQ(table.completed(), 20);
  }
}

TEST(LeaseTable, AWorkerMayHoldSeveral) {
  LeaseTable table({.examples = 40, .batch = 10});
  const Lease first = table.Next(0).lease, second = table.Next(0).lease,
              third = table.Next(1).lease;
  EXPECT_TRUE(table.Complete(0, second.id));
  EXPECT_FALSE(table.Complete(1, first.id)) << "it is another worker's";
  EXPECT_EQ(table.Lose(0), 1);
  EXPECT_EQ(table.Next(1).lease.id, first.id);
  EXPECT_EQ(table.repeated_examples(), 10);
  EXPECT_EQ(table.held().size(), 2u);
  EXPECT_EQ(table.held().at(third.id).first, 1);
}

TEST(LeaseTable, StopsAtALimitAndGoesOn) {
  LeaseTable table({.examples = 100, .batch = 10});
  table.set_gate({.steps = 2});
  const Lease first = table.Next(0).lease, second = table.Next(1).lease;
  EXPECT_EQ(table.Next(2).state, State::kWait);
  table.Complete(0, first.id);
  EXPECT_EQ(table.Next(2).state, State::kWait);
  EXPECT_EQ(table.Lose(1), 1);
  EXPECT_EQ(table.Next(0).lease.id, second.id) << "what the limit counts may be leased again";
  table.Complete(0, second.id);
  table.set_gate({.steps = 4});
  EXPECT_EQ(table.Next(0).state, State::kLeased);
  table.set_gate({.closed = true});
  EXPECT_EQ(table.Next(1).state, State::kWait);
  LeaseTable epochs({.examples = 10, .batch = 10, .epochs = 3});
  epochs.set_gate({.last_epoch = 0});
  const Lease only = epochs.Next(0).lease;
  EXPECT_EQ(epochs.Lose(0), 1);
  EXPECT_EQ(epochs.Next(1).state, State::kLeased) << "of an epoch that the gate lets through";
  epochs.Complete(1, only.id);
  EXPECT_EQ(epochs.Next(1).state, State::kWait);
}

TEST(LeaseTable, KnowsHowManyLeasesAreLeftUntilAllWait) {
  LeaseTable table({.examples = 45, .batch = 10, .epochs = 2});
  EXPECT_EQ(table.until_wait(), 5);
  const Lease first = table.Next(0).lease;
  EXPECT_EQ(table.until_wait(), 4);
  table.set_gate({.steps = 3});
  EXPECT_EQ(table.until_wait(), 2);
  table.set_gate({.closed = true});
  EXPECT_EQ(table.until_wait(), 0);
  table.set_gate({});
  for (int i = 0; i < 4; ++i) table.Next(1);
  EXPECT_EQ(table.until_wait(), 0) << "the next epoch begins when this one is complete";
  table.Lose(1);
  EXPECT_EQ(table.until_wait(), 4) << "those come back";
  table.set_gate({.closed = true});
  EXPECT_EQ(table.until_wait(), 4);
  table.set_gate({});
  for (int i = 0; i < 4; ++i) table.Complete(0, table.Next(0).lease.id);
  EXPECT_EQ(table.until_wait(), 0);
  table.Complete(0, first.id);
  EXPECT_EQ(table.until_wait(), 5);
  table.set_gate({.last_epoch = 0});
  EXPECT_EQ(table.until_wait(), 0);
  table.set_gate({});
  for (int i = 0; i < 5; ++i) table.Next(0);
  EXPECT_EQ(table.until_wait(), 0) << "this was the last epoch";
  EXPECT_EQ(LeaseTable({.examples = 45, .batch = 10, .max_steps = 3}).until_wait(), 3);
  // Resumed in the middle of a batch.
  const LeaseTable::Options options{.examples = 45, .batch = 10};
  EXPECT_EQ(
      LeaseTable::FromRecord(options, LeaseTable::RecordAt(options, 0, 25, 3, 25)).until_wait(), 3)
      << "25 to 30, 30 to 40 and 40 to 45";
}

// By trying it: a copy gives out leases until it has none.
TEST(LeaseTable, CountsWhatItWouldGiveOutUntilAllWait) {
  std::mt19937 random(3);
  int closed = 0, came_back = 0;
  for (int run = 0; run < 50; ++run) {
    const int64_t batch = 1 + static_cast<int64_t>(random() % 12);
    LeaseTable::Options options{
        .examples = 20 + static_cast<int64_t>(random() % 80), .batch = batch, .epochs = 3};
    if (random() % 2 == 0) options.max_steps = 1 + static_cast<int64_t>(random() % 40);
    LeaseTable table(options);
    for (int i = 0; i < 200 && !table.done(); ++i) {
      const int worker = static_cast<int>(random() % 3);
      const std::vector<Lease> held = table.held_by(worker);
      switch (random() % 8) {
        case 0:
          table.Lose(worker);
          break;
        case 1:
          table.set_gate({.closed = random() % 2 == 0});
          break;
        case 2:
          table.set_gate({.steps = table.completed() + static_cast<int64_t>(random() % 9)});
          break;
        case 3:
          table.set_gate(
              {.last_epoch = table.ToRecord().epoch - static_cast<int64_t>(random() % 2)});
          break;
        case 4:
          table.set_gate({});
          break;
        case 5:
          table.Next(worker);
          break;
        default:
          if (!held.empty()) table.Complete(worker, held.front().id);
      }
      came_back += table.returned().empty() ? 0 : 1;
      LeaseTable copy = table;
      int64_t given = 0;
      while (copy.Next(7).state == State::kLeased) ++given;
      closed += given == 0 ? 1 : 0;
      ASSERT_EQ(table.until_wait(), given) << "run " << run << ", action " << i;
    }
  }
  EXPECT_GT(closed, 100);
  EXPECT_GT(came_back, 100);
}

TEST(LeaseTable, AnIdTellsThePlace) {
  const LeaseTable::Options options{.examples = 25, .batch = 10, .epochs = 4};
  // A chief knew of three leases; since then workers completed one more, and hold two.
  LeaseTable before(options);
  for (const int worker : {0, 0, 1}) (void)before.Next(worker);
  before.Complete(0, 1);
  LeaseTable table = LeaseTable::FromRecord(options, before.ToRecord());
  EXPECT_TRUE(table.Reach(6));
  EXPECT_FALSE(table.Adopt(0, 1)) << "completed, by the record";
  for (const int64_t id : {2, 3}) {
    EXPECT_TRUE(table.Adopt(0, id));
    EXPECT_TRUE(table.Complete(0, id));
    EXPECT_FALSE(table.Adopt(0, id));
  }
  EXPECT_TRUE(table.Adopt(1, 5));
  EXPECT_TRUE(table.Adopt(0, 6));
  EXPECT_FALSE(table.Adopt(0, 6));
  EXPECT_EQ(table.held().at(6).second.epoch, 1);
  EXPECT_EQ(table.held().at(6).second.begin, 20);
  EXPECT_EQ(table.held().at(6).second.end, 25);
  EXPECT_EQ(table.completed(), 3);
  EXPECT_EQ(table.Next(2).lease.id, 4) << "no worker has reported it";

  // And from a checkpoint of another batch size: back to the grid.
  LeaseTable on = LeaseTable::FromRecord(options, LeaseTable::RecordAt(options, 2, 8, 7, 58));
  const Lease lease = on.Next(0).lease;
  EXPECT_EQ(lease.id, 7);
  EXPECT_EQ(lease.begin, 8);
  EXPECT_EQ(lease.end, 10);
  EXPECT_EQ(LeaseTable::RecordAt(options, 2, 25, 7, 58).epoch, 3);
}

// A report of one would otherwise give the whole run out: past gates, and as if it were repeated.
TEST(LeaseTable, AnIdThatTheRunDoesNotHaveChangesNothing) {
  const LeaseTable::Options options{.examples = 25, .batch = 10, .epochs = 4};
  LeaseTable table(options);
  (void)table.Next(0);
  for (const int64_t id : {int64_t{-1}, int64_t{0}, int64_t{13}, int64_t{1} << 62, INT64_MAX}) {
    EXPECT_FALSE(table.Reach(id)) << id;
    EXPECT_TRUE(table.returned().empty()) << id;
  }
  EXPECT_TRUE(table.Reach(12)) << "the last one";
  EXPECT_EQ(table.returned().size(), 11u);

  // A run of 5 steps that continues after 2 has 3 leases, of which one is complete and one is held.
  LeaseTable::Options few = options;
  few.epochs = INT32_MAX;
  few.max_steps = 5;
  LeaseTable limited = LeaseTable::FromRecord(few, LeaseTable::RecordAt(few, 1, 0, 2, 20));
  limited.Complete(0, limited.Next(0).lease.id);
  EXPECT_EQ(limited.Next(0).lease.id, 5);
  EXPECT_FALSE(limited.Reach(7));
  EXPECT_TRUE(limited.returned().empty());
  EXPECT_TRUE(limited.Reach(6));
  EXPECT_EQ(limited.returned().size(), 1u);
  EXPECT_TRUE(limited.Reach(4)) << "it is complete";
  few.max_steps = 2;
  EXPECT_TRUE(LeaseTable::FromRecord(few, limited.ToRecord()).Reach(6))
      << "what was given out before the limit was lowered";
  LeaseTable::Options less = options;
  less.epochs = 1;
  EXPECT_TRUE(LeaseTable::FromRecord(less, LeaseTable::RecordAt(options, 2, 0, 6, 50)).Reach(6));
  EXPECT_FALSE(LeaseTable::FromRecord(less, LeaseTable::RecordAt(options, 2, 0, 6, 50)).Reach(7));

  LeaseTable::Options endless{.examples = 10, .batch = 10, .epochs = INT64_MAX};
  const auto far = LeaseTable::RecordAt(endless, kEndOfLeaseIds - 1, 0, 0, 0);
  EXPECT_FALSE(LeaseTable::FromRecord(endless, far).Reach(kEndOfLeaseIds)) << "that of a part";
}

TEST(ClockTable, NobodyRunsFurtherAheadThanAllowed) {
  for (const int64_t s : {0, 1, 3}) {
    ClockTable clocks(s);
    for (const int worker : {0, 1, 2}) clocks.Join(worker);
    // Worker 0 is as fast as it may be: batch c starts when all have pushed batch c - 1 - s.
    for (int64_t pushed = 0; pushed <= s; ++pushed) {
      EXPECT_EQ(clocks.WaitsFor(0), -1) << pushed;
      clocks.Tick(0);
    }
    EXPECT_EQ(clocks.WaitsFor(0), 1);
    EXPECT_EQ(clocks.WaitsFor(1), -1);
    clocks.Tick(1);
    EXPECT_EQ(clocks.WaitsFor(0), 2);
    clocks.Lose(2);
    EXPECT_EQ(clocks.WaitsFor(0), -1) << "a lost worker leaves the minimum";
    clocks.Tick(0);
    clocks.Join(2);
    EXPECT_EQ(clocks.WaitsFor(2, s), -1) << "and comes back where the slowest is";
    EXPECT_EQ(clocks.WaitsFor(2, s + 1), 1);
  }
  ClockTable free{std::nullopt};
  free.Join(0);
  free.Join(1);
  for (int i = 0; i < 100; ++i) free.Tick(0);
  EXPECT_EQ(free.WaitsFor(0), -1);
}

}  // namespace
}  // namespace muster::chief
