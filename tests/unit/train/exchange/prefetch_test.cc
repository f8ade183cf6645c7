// Rows of embedding tables that are on their way before their step.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <numeric>
#include <set>

#include "tests/unit/train/exchange/exchange_worker.h"

namespace muster {
namespace {

using testing::kWidth;
using testing::MakeJob;
using testing::Servers;
using testing::Small;
using testing::TestProgram;
using testing::Worker;

// Two keys an example, of a few, so that steps share some.
data::Batch KeyBatch(int64_t step, int64_t batch = 8) {
  at::Tensor keys = at::empty({batch, 2}, at::kLong);
  for (int64_t i = 0; i < keys.numel(); ++i)
    keys.mutable_data_ptr<int64_t>()[i] = (step * 7 + i * i * 3) % 29;
  return {keys, at::arange(batch, at::kFloat)};
}

void WithRows(TestProgram& p) {
  p.on_build = [](TestProgram& self, Builder& builder) {
    self.model->parameter("b", at::zeros({}));
    builder.model("net", self.model);
    self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, "sgd", 0.05);
    EmbeddingOptions options;
    options.width = kWidth;
    options.optimizer = "sgd";
    options.learning_rate = 0.1;
    self.embeddings["rows"] = builder.embedding("rows", options);
    builder.dataset(Split::kTrain, testing::Tensors2(KeyBatch(1)[0], KeyBatch(1)[1]));
  };
  p.on_step = [](TestProgram& self, muster::Step& step, const data::Batch& batch) {
    const at::Tensor rows = step.lookup(self.embeddings["rows"], batch[0]);
    step.minimize(self.optimizers["sgd"],
                  (rows.sum(2).sum(1) + (*self.model)["b"] - batch[1]).square());
  };
  p.on_prefetch = [](const TestProgram& self, Prefetch& rows, const data::Batch& batch) {
    rows.keys(self.embeddings.at("rows"), batch[0].select(1, 0));
    rows.keys(self.embeddings.at("rows"), batch[0].select(1, 1));
  };
}

class PrefetchTest : public ::testing::Test {
 protected:
  PrefetchTest()
      : worker(
            MakeJob(8, 9), Small(2), [](TestProgram& p) { WithRows(p); }, &servers) {}
  std::shared_ptr<PrefetchedRows> Prefetch(int64_t step) {
    auto rows = worker.exchange().Prefetch(worker.replica.get(), KeyBatch(step));
    EXPECT_TRUE(rows.ok()) << rows.status();
    EXPECT_NE(*rows, nullptr);
    return *rows;
  }
  absl::Status Step(int64_t step, std::shared_ptr<PrefetchedRows> rows = nullptr) {
    return worker.Step(KeyBatch(step), step, std::move(rows)).status();
  }
  size_t fetched() const {
    return std::accumulate(worker.client->fetched.begin(), worker.client->fetched.end(), size_t{0});
  }
  static size_t DifferentKeys(int64_t step) {
    const at::Tensor keys = KeyBatch(step)[0];
    const int64_t* data = keys.const_data_ptr<int64_t>();
    return std::set<int64_t>(data, data + keys.numel()).size();
  }

  std::unique_ptr<Servers> servers;
  Worker worker;
};

// A worker's phase follows this, because an absent server is not the worker's fault.
TEST_F(PrefetchTest, TellsWhetherServersAreWaitedFor) {
  bool waits = false;
  int waited = 0;
  worker.exchange().set_on_wait([&](bool now) {
    EXPECT_NE(std::exchange(waits, now), now);
    waited += now ? 1 : 0;
  });
  worker.client->on_wait = [&] { EXPECT_TRUE(waits); };
  ASSERT_TRUE(worker.exchange().Pull().ok());
  EXPECT_EQ(std::exchange(waited, 0), 1);
  ASSERT_TRUE(Step(1, Prefetch(1)).ok());
  EXPECT_EQ(std::exchange(waited, 0), 3) << "rows, the push, the push of rows";
  EXPECT_FALSE(waits);
  worker.client->fails = PeerLost("gone");
  EXPECT_FALSE(Step(2).ok());
  EXPECT_GT(waited, 0);
  EXPECT_FALSE(waits);
}

TEST_F(PrefetchTest, StepsSeeTheRowsThatTheyWouldHavePulled) {
  std::unique_ptr<Servers> plain_servers;
  Worker plain(
      MakeJob(8, 9), Small(2), [](TestProgram& p) { WithRows(p); }, &plain_servers);
  std::shared_ptr<PrefetchedRows> next;
  for (int64_t step = 1; step <= 9; ++step) {
    std::shared_ptr<PrefetchedRows> now = std::exchange(next, nullptr);
    // While the step is computed; and of one more, whose batch is never taken.
    next = Prefetch(step + 1);
    const std::shared_ptr<PrefetchedRows> dropped = Prefetch(step + 2);
    ASSERT_TRUE(Step(step, std::move(now)).ok());
    ASSERT_TRUE(plain.Step(KeyBatch(step), step).ok());
    ASSERT_EQ(servers->AllRows(), plain_servers->AllRows()) << "step " << step;
  }
  EXPECT_GT(servers->AllRows().size(), 20u);
  EXPECT_TRUE(at::equal((*worker.program->model)["b"], (*plain.program->model)["b"]));
}

TEST_F(PrefetchTest, OnlyWhatWasPushedMeanwhileIsPulledAgain) {
  const auto first = Prefetch(1);
  EXPECT_EQ(fetched(), DifferentKeys(1));
  ASSERT_TRUE(Step(1, first).ok());
  EXPECT_EQ(fetched(), DifferentKeys(1)) << "all of it was there";
  const auto second = Prefetch(2);  // after the push: with it
  ASSERT_TRUE(Step(2, second).ok());
  EXPECT_EQ(fetched(), DifferentKeys(1) + DifferentKeys(2));
  const auto fourth = Prefetch(4);
  const size_t before = fetched() + DifferentKeys(3);
  ASSERT_TRUE(Step(3).ok());
  const size_t after = fetched();  // behind the push
  EXPECT_GT(after, before);
  EXPECT_LT(after, before + DifferentKeys(4));
  ASSERT_TRUE(Step(4, fourth).ok());
  EXPECT_EQ(fetched(), after) << "all of it was there";
}

TEST_F(PrefetchTest, StalenessCountsFromThePullThatTheStepUsed) {
  const auto first = Prefetch(1);
  const auto key = static_cast<uint64_t>(KeyBatch(1)[0].const_data_ptr<int64_t>()[0]);
  for (int n = 0; n < 3; ++n) servers->PushAsOther(key, 0.25f);
  ASSERT_TRUE(Step(1, first).ok());
  const auto most = [&] {
    int64_t most = 0;
    for (const auto& [place, staleness] : std::exchange(worker.client->staleness, {})) {
      EXPECT_GE(staleness, 0);
      most = std::max(most, staleness);
    }
    return most;
  };
  EXPECT_EQ(most(), 3);
  ASSERT_TRUE(Step(1).ok());
  EXPECT_EQ(most(), 0) << "pulled when it was looked up";
}

// One round trip for the rest of all tables, for every part that is prefetched.
TEST(SeveralTables, AreAskedForBeforeAnyAnswerIsAwaited) {
  const auto set_up = [](bool at_once) {
    return [at_once](TestProgram& p) {
      WithRows(p);
      const auto build = p.on_build;
      p.on_build = [build](TestProgram& self, Builder& builder) {
        build(self, builder);
        for (const char* name : {"second", "third"}) {
          EmbeddingOptions options;
          options.width = kWidth;
          options.optimizer = "sgd";
          options.learning_rate = 0.1;
          self.embeddings[name] = builder.embedding(name, options);
        }
      };
      p.on_step = [at_once](TestProgram& self, muster::Step& step, const data::Batch& batch) {
        std::vector<TableKeys> keys;
        for (const char* name : {"rows", "second", "third", "rows"})
          keys.push_back({self.embeddings[name], batch[0] + static_cast<int64_t>(keys.size())});
        std::vector<at::Tensor> rows;
        if (at_once) {
          rows = step.lookup(keys);
        } else {
          for (const TableKeys& of : keys) rows.push_back(step.lookup(of.table, of.keys));
        }
        at::Tensor sum = (*self.model)["b"] - batch[1];
        for (const at::Tensor& of : rows) sum = sum + of.sum(2).sum(1);
        step.minimize(self.optimizers["sgd"], sum.square());
      };
    };
  };
  std::unique_ptr<Servers> servers, plain_servers;
  Worker worker(MakeJob(8, 9), Small(2), set_up(true), &servers);
  Worker plain(MakeJob(8, 9), Small(2), set_up(false), &plain_servers);
  for (int64_t step = 1; step <= 6; ++step) {
    std::shared_ptr<PrefetchedRows> ahead;
    if (step % 2 == 0) ahead = *worker.exchange().Prefetch(worker.replica.get(), KeyBatch(step));
    const size_t before = worker.client->fetched.size();
    worker.client->awaited.clear();
    worker.client->row_fetches = worker.client->row_launches = 0;
    ASSERT_TRUE(worker.Step(KeyBatch(step), step, ahead).ok());
    ASSERT_TRUE(plain.Step(KeyBatch(step), step).ok());
    ASSERT_EQ(servers->AllRows(), plain_servers->AllRows()) << "step " << step;
    const std::vector<size_t>& awaited = worker.client->awaited;
    EXPECT_EQ(worker.client->row_launches, 1) << "step " << step;
    if (step % 2 == 1) {
      EXPECT_EQ(awaited, std::vector<size_t>(3, before + 3)) << "step " << step;
      EXPECT_EQ(worker.client->row_fetches, 1) << "step " << step;
    } else {
      ASSERT_GE(awaited.size(), 3u);
      EXPECT_GE(awaited.front(), before + 2) << "the tables that were not prefetched come first";
    }
  }
}

TEST_F(PrefetchTest, AnotherClientKnowsNothingOfThem) {
  const auto first = Prefetch(1);
  servers->PushAsOther(static_cast<uint64_t>(KeyBatch(1)[0].const_data_ptr<int64_t>()[0]), 1);
  worker.exchange().UseClient(nullptr);
  EXPECT_EQ(*worker.exchange().Prefetch(worker.replica.get(), KeyBatch(2)), nullptr);
  worker.exchange().UseClient(worker.client.get());
  ASSERT_TRUE(Step(1, first).ok());
  EXPECT_EQ(fetched(), 2 * DifferentKeys(1));
  for (const auto& [place, staleness] : worker.client->staleness) EXPECT_EQ(staleness, 0);
}

TEST_F(PrefetchTest, AProgramsMistakeIsItsOwn) {
  worker.program->on_prefetch = [](const TestProgram& self, muster::Prefetch& rows,
                                   const data::Batch& batch) {
    rows.keys(self.embeddings.at("rows"), batch[1]);
  };
  const auto wrong = worker.exchange().Prefetch(worker.replica.get(), KeyBatch(1));
  EXPECT_EQ(ExitCodeOf(wrong.status()), ExitCode::kProgramFailed);
  EXPECT_EQ(Message(wrong.status()), "prefetch(\"rows\") needs integer keys, and got Float");
  worker.program->on_prefetch = [](const TestProgram&, muster::Prefetch&, const data::Batch&) {
    throw std::runtime_error("no such column");
  };
  const auto thrown = worker.exchange().Prefetch(worker.replica.get(), KeyBatch(1));
  EXPECT_EQ(ExitCodeOf(thrown.status()), ExitCode::kProgramFailed);
  EXPECT_EQ(Message(thrown.status()), "prefetch failed: no such column");
  worker.program->on_prefetch = nullptr;
  EXPECT_EQ(*worker.exchange().Prefetch(worker.replica.get(), KeyBatch(1)), nullptr);
}

}  // namespace
}  // namespace muster
