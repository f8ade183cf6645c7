// How far a WorkTable lets workers run apart.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "tests/unit/leases/crew.h"

namespace muster::chief {
namespace {

// Parameters come with the push before. A batch that is to contain what others push after that has
// to wait, and is pulled for when it may start; one that need not wait was given after all that.
TEST(WorkTable, ABatchPullsWhatTheBoundSaysItReads) {
  WorkTable::Options options = Asynchronous(1000, 10);
  options.max_staleness = 1;
  WorkTable table(options, {});
  Crew crew(&table, 2);
  const Reply slow = crew.Next(1), first = crew.Next(0), second = crew.Next(0);
  EXPECT_TRUE(first.lease().pull()) << "a new worker has no parameters";
  EXPECT_FALSE(second.lease().training().wait()) << "it may read what it has";
  crew.Finish(0, first);
  const Reply third = crew.Next(0);
  ASSERT_TRUE(third.has_lease()) << "it is loaded ahead";
  EXPECT_TRUE(third.lease().training().wait()) << "batch 3 reads batch 1 of worker 1";
  crew.Finish(1, slow);
  const Reply next = crew.Next(1);
  EXPECT_FALSE(next.lease().training().wait()) << "the slowest worker has all that it may request";
  // While batch 2 is worked on: what is pulled with its push may be new enough.
  EXPECT_EQ(crew.Start(0, third).start().lease(), third.lease().id());
  EXPECT_EQ(crew.Start(0, third).start().lease(), third.lease().id()) << "the answer was lost";
  crew.Finish(0, second);
  crew.Next(0, 0);
  crew.Forget(0);
  EXPECT_FALSE(crew.Next(0).lease().training().wait()) << "so it stays";
}

TEST(WorkTable, ClocksHoldTheFastestUp) {
  WorkTable::Options options = Asynchronous(1000, 10);
  options.max_staleness = 1;
  WorkTable table(options, {});
  Crew crew(&table, 2);
  const Reply slow = crew.Next(1);
  for (int i = 0; i < 2; ++i) {
    const Reply lease = crew.Next(0);
    ASSERT_FALSE(lease.lease().training().wait()) << i;
    crew.Finish(0, lease);
  }
  const Reply ahead = crew.Next(0);
  EXPECT_TRUE(ahead.lease().training().wait());
  const Reply held = crew.Start(0, ahead);
  EXPECT_EQ(held.answer_case(), Reply::kWait);
  EXPECT_EQ(held.wait().reason(), "worker 1 is too far behind (max_staleness 1)");
  crew.Finish(1, slow);
  EXPECT_FALSE(crew.Next(1).lease().training().wait());
  EXPECT_EQ(crew.Start(0, ahead, /*want=*/1).answer_case(), Reply::kStart);
}

// One worker holds a lease and waits for a second worker, which finds no lease. Each would wait for
// the other.
TEST(WorkTable, ALeaseThatWaitsIsTheSlowestOnesWhereNoOtherIsLeft) {
  WorkTable::Options options = Asynchronous(40, 10);
  options.max_staleness = 1;
  WorkTable table(options, {});
  Crew crew(&table, 2);
  const Reply slow = crew.Next(1);
  for (int i = 0; i < 2; ++i) crew.Finish(0, crew.Next(0));
  const Reply last = crew.Next(0);
  ASSERT_TRUE(last.lease().training().wait());
  EXPECT_EQ(crew.Next(1).answer_case(), Reply::kWait) << "it has one";
  crew.Finish(1, slow);
  crew.Next(1, /*want=*/0);
  const uint64_t before = table.changes();
  const Reply moved = crew.Next(1);
  ASSERT_EQ(moved.lease().id(), last.lease().id());
  EXPECT_FALSE(moved.lease().training().wait());
  EXPECT_NE(table.changes(), before) << "the worker that had it learns this";
  EXPECT_FALSE(table.Abandoned(0)) << "a push of it continues";
  const Reply lost = crew.Start(0, last);
  ASSERT_TRUE(lost.has_lost());
  EXPECT_EQ(lost.lost().leases(0), last.lease().id());
  table.LoseWorker(0);
  EXPECT_EQ(table.torn_pushes(), 0);
  crew.Finish(1, moved);
  crew.Next(1, 0);
  EXPECT_TRUE(table.all_done());
  EXPECT_EQ(table.repeated_examples(), 0) << "nobody had started it";
}

// Its record tells who holds what, not who waits.
TEST(WorkTable, ARestartedChiefHearsWhichLeasesWait) {
  WorkTable::Options options = Asynchronous(50, 10);
  options.max_staleness = 1;
  WorkTable before(options, {});
  Crew old(&before, 2);
  const Reply slow = old.Next(1);
  const Json record = before.ToRecord();
  auto restarted = WorkTable::FromRecord(options, record);
  ASSERT_TRUE(restarted.ok()) << restarted.status();
  WorkTable& table = **restarted;
  for (int w = 0; w < 2; ++w) table.SetWorker(w, 100 + w, /*returning=*/true);
  proto::NextRequest first, second;
  first.mutable_worker()->set_worker(0);
  for (int64_t id = 2; id <= 4; ++id) {
    proto::BatchDone& done = *first.add_done();
    done.set_lease(id);
    done.add_metric_sums(0);
  }
  first.add_held(5);
  first.set_start(5);
  second.mutable_worker()->set_worker(1);
  second.add_held(slow.lease().id());
  ASSERT_TRUE(table.Take(first).ok() && table.Take(second).ok());
  Reply reply;
  const uint64_t changes = table.changes();
  EXPECT_FALSE(table.Answer(first, "", &reply));
  EXPECT_EQ(reply.wait().reason(), "worker 1 is too far behind (max_staleness 1)");
  EXPECT_NE(table.changes(), changes) << "a worker that finds no lease may have this one";
  *second.add_done() = Crew::Done(slow);
  second.clear_held();
  second.set_want(true);
  ASSERT_TRUE(table.Take(second).ok());
  ASSERT_TRUE(table.Answer(second, "", &reply));
  EXPECT_EQ(reply.lease().id(), 5);
}

// Workers as worker/parameter_server/lease_client.h has them, in any order of events.
class BoundedCrew {
 public:
  BoundedCrew(const WorkTable::Options& options, int workers, int seed)
      : options_(options),
        random_(seed),
        table_(std::make_unique<WorkTable>(options, checkpoint::TrainingState())) {
    for (int w = 0; w < workers; ++w) Join(w);
  }

  // One worker does something. False: nobody will ever.
  bool Act() {
    const int w = static_cast<int>(random_() % workers_.size());
    Worker& worker = workers_[w];
    if (worker.computing && random_() % (w == 0 ? 12 : 3) == 0) {
      const Reply lease = worker.held.front();
      worker.held.pop_front();
      worker.computing = false;
      ++worker.pushed;
      ++pushed_[{lease.lease().training().epoch(), lease.lease().begin()}];
      Ask(w, &lease);
    } else if (!worker.computing && !worker.held.empty() &&
               !worker.held.front().lease().training().wait()) {
      const int64_t batch = worker.pushed + 1;
      for (const auto& [other, state] : workers_)
        EXPECT_GE(state.pushed, batch - 1 - *options_.max_staleness)
            << "worker " << w << " starts " << batch;
      worker.computing = true;
    } else {
      Ask(w, nullptr);
    }
    return !testing::Test::HasFailure();
  }
  void Lose(int w) {
    table_->LoseWorker(w);
    Join(w);
  }
  // Another chief, with the record of now.
  void Restart() {
    table_ = *WorkTable::FromRecord(options_, Json::parse(table_->ToRecord().dump()));
    for (auto& [w, worker] : workers_) table_->SetWorker(w, worker.incarnation, /*returning=*/true);
    table_->FinishRecovery();
    for (auto& [w, worker] : workers_) worker.pushed = 0;
    for (auto& [w, worker] : workers_) Ask(w, nullptr, /*tell=*/true);
  }
  WorkTable& table() { return *table_; }
  std::mt19937& random() { return random_; }
  const std::map<std::pair<int64_t, int64_t>, int>& pushed() const { return pushed_; }

 private:
  struct Worker {
    uint64_t incarnation = 0;
    int64_t pushed = 0;  // as its clock says
    std::deque<Reply> held;
    bool computing = false;
  };
  void Join(int w) {
    workers_.erase(w);
    int64_t slowest = workers_.empty() ? 0 : workers_.begin()->second.pushed;
    for (const auto& [other, worker] : workers_) slowest = std::min(slowest, worker.pushed);
    workers_[w] = {.incarnation = ++incarnations_, .pushed = slowest};
    table_->SetWorker(w, incarnations_, /*returning=*/false);
  }
  void Ask(int w, const Reply* done, bool tell = false) {
    Worker& worker = workers_[w];
    proto::NextRequest request;
    request.mutable_worker()->set_worker(w);
    if (done != nullptr) *request.add_done() = Crew::Done(*done);
    for (const Reply& lease : worker.held) request.add_held(lease.lease().id());
    for (const Reply& lease : worker.held) {
      if (!lease.lease().training().wait()) continue;
      request.set_start(lease.lease().id());
      break;
    }
    request.set_want(!tell && request.start() == 0 && worker.held.size() < 2);
    EXPECT_TRUE(table_->Take(request).ok());
    if (tell) return;
    Reply reply;
    table_->Answer(request, "", &reply);
    if (reply.has_lease()) worker.held.push_back(reply);
    for (Reply& lease : worker.held)
      if (reply.has_start() && lease.lease().id() == reply.start().lease())
        lease.mutable_lease()->mutable_training()->set_wait(false);
    for (const int64_t lost : reply.lost().leases()) {
      EXPECT_TRUE(worker.held.back().lease().training().wait()) << "it may have been started";
      EXPECT_EQ(worker.held.back().lease().id(), lost);
      worker.held.pop_back();
    }
  }

  const WorkTable::Options options_;
  std::mt19937 random_;
  std::unique_ptr<WorkTable> table_;
  std::map<int, Worker> workers_;
  uint64_t incarnations_ = 0;
  std::map<std::pair<int64_t, int64_t>, int> pushed_;  // by epoch and begin
};

TEST(WorkTable, NobodyRunsPastTheBoundOrWaitsForEver) {
  for (int seed = 0; seed < 120; ++seed) {
    const int workers = 2 + seed % 3;
    WorkTable::Options options = Asynchronous(60 + seed, 10, 4);
    options.max_staleness = 1 + seed / 3 % 3;
    BoundedCrew crew(options, workers, seed);
    const bool losses = seed % 2 == 1;
    int events = 0, restarts = 0;
    crew.table().set_gate({.steps = 5});
    for (; !crew.table().all_done() && events < 20000 && crew.Act(); ++events) {
      // Sets the gate as a checkpoint does.
      if (crew.table().between_steps() && crew.random()() % 4 == 0)
        crew.table().set_gate({.steps = crew.table().steps() + 1 + crew.random()() % 9});
      if (losses && crew.random()() % 100 == 0)
        crew.Lose(static_cast<int>(crew.random()() % workers));
      if (losses && crew.random()() % 200 == 0) {
        const auto gate = crew.table().gate();
        crew.Restart();
        crew.table().set_gate(gate);
        ++restarts;
      }
    }
    ASSERT_TRUE(crew.table().all_done())
        << seed << ": no worker continues after " << crew.table().steps() << " steps";
    ASSERT_FALSE(HasFailure()) << seed;
    EXPECT_EQ(crew.pushed().size(), static_cast<size_t>(crew.table().steps()));
    for (const auto& [place, count] : crew.pushed()) EXPECT_EQ(count, 1) << seed;
  }
}

}  // namespace
}  // namespace muster::chief
