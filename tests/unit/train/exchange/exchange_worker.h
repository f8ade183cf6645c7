// A worker with a replica, a ParameterExchange and fake servers, for the tests of
// ParameterExchange.
#pragma once

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "common/collective/group/formation.h"
#include "common/data/pipeline.h"
#include "common/optim/update_kernels.h"
#include "common/push_pull/rows/packed_rows.h"
#include "common/train/exchange/parameter_exchange.h"
#include "common/train/step/step.h"
#include "ps/shard_store.h"
#include "tests/unit/train/test_program.h"

namespace muster::testing {

inline constexpr int64_t kWidth = 3;  // The width of rows.

// The state of all parameter servers. Rows are updated with plain SGD.
class Servers {
 public:
  Servers(const push_pull::Layout& layout, const std::vector<RuleSpec>& rules,
          const std::vector<std::vector<std::span<float>>>& start)
      : layout(layout) {
    for (size_t shard = 0; shard < start.size(); ++shard) {
      std::vector<float> all;
      for (const auto& span : start[shard]) all.insert(all.end(), span.begin(), span.end());
      ps::ShardStore::Options options{{}, rules};
      for (const push_pull::Chunk& chunk : layout.chunks[shard])
        if (!chunk.rows()) options.chunks.push_back(chunk);
      stores.push_back(ps::ShardStore::Make(options));
      for (size_t c = 0; c < options.chunks.size(); ++c) {
        const push_pull::Chunk& chunk = options.chunks[c];
        EXPECT_TRUE(
            stores[shard]
                ->Fill(static_cast<int>(c), std::span(all).subspan(chunk.begin, chunk.elements()))
                .ok());
      }
      for (int worker = 0; worker < 64; ++worker) stores[shard]->Admit(worker, 1);
    }
  }

  // The rows of a chunk, and the number of updates by other workers than the test's.
  struct RowChunk {
    std::unique_ptr<push_pull::EmbeddingTable> table;
    int64_t others = 0;
  };
  RowChunk& Rows(int shard, int chunk) {
    RowChunk& rows = row_chunks[{shard, chunk}];
    if (rows.table == nullptr)
      rows.table =
          push_pull::EmbeddingTable::Make({.width = kWidth, .rule = SgdSpec{}, .shards = 1});
    return rows;
  }
  // Pushes the gradient of a row as another worker.
  void PushAsOther(uint64_t key, float gradient) {
    const push_pull::RowPlace place =
        push_pull::PlaceOfRow(key, static_cast<int>(layout.chunks.size()));
    const auto& chunks = layout.chunks[place.server];
    const auto first =
        std::ranges::find_if(chunks, [](const push_pull::Chunk& c) { return c.rows(); });
    RowChunk& rows = Rows(place.server, static_cast<int>(first - chunks.begin()) + place.chunk);
    EXPECT_TRUE(rows.table->Push({&key, 1}, std::vector<float>(kWidth, gradient), 1).ok());
    ++rows.others;
  }
  std::map<uint64_t, std::vector<float>> AllRows() {
    std::map<uint64_t, std::vector<float>> all;
    for (const auto& [place, rows] : row_chunks)
      rows.table->Export([&all](uint64_t key, std::span<const float> row) {
        all[key].assign(row.begin(), row.end());
      });
    return all;
  }

  const push_pull::Layout layout;
  // By shard. A store has only the dense chunks, which come before those of tables.
  std::vector<std::unique_ptr<ps::ShardStore>> stores;
  std::map<std::pair<int, int>, RowChunk> row_chunks;
};

class FakeClient final : public push_pull::PushPullClient {
 public:
  FakeClient(Servers* servers, std::vector<std::vector<std::span<float>>> parameters, int worker)
      : servers_(servers), parameters_(std::move(parameters)), worker_(worker) {
    for (const int64_t elements : servers->layout.elements) gradients_.emplace_back(elements, 7.f);
  }
  std::span<float> gradients(int shard) override { return gradients_[shard]; }
  void Begin(uint64_t sequence, int64_t, std::vector<double> learning_rates) override {
    learning_rates_ = std::move(learning_rates);
    sequences.push_back(sequence);
  }
  using PushPullClient::Launch;
  void Launch(int shard, int index, What what) override {
    const push_pull::Chunk& chunk = servers_->layout.chunks[shard][index];
    if (what == What::kNothing) {
      ++pulled;
      return Fetch(shard, index);
    }
    launched.push_back(chunk.optimizer);
    push_pull::ChunkPush push{{worker_, 1, sequences.back()}};
    push.learning_rate = learning_rates_[chunk.optimizer];
    push.floor = what == What::kDifference;
    push.gradient =
        std::span<const float>(gradients_[shard]).subspan(chunk.begin, chunk.elements());
    const auto pushed = servers_->stores[shard]->Apply(index, push, {});
    EXPECT_TRUE(pushed.ok() && (pushed->applied || pushed->refused)) << pushed.status();
    if (pushed.ok() && pushed->refused) refused_.emplace(shard, index);
    if (late) {
      waiting_.emplace_back(shard, index);
    } else {
      Fetch(shard, index);
    }
  }
  // With `late`: pulls the pushed chunks. A test calls it after other workers have pushed.
  void TakeLate() {
    for (const auto& [shard, index] : std::exchange(waiting_, {})) Fetch(shard, index);
  }
  absl::StatusOr<Outcome> Finish() override {
    on_wait();
    finished.push_back(launched.size());
    Outcome outcome{3, 2, 10, 0};
    outcome.refused = std::exchange(refused_, {});
    return fails.ok() ? absl::StatusOr<Outcome>(outcome) : fails;
  }
  absl::Status Pull() override {
    on_wait();
    const auto& shards = servers_->layout.chunks;
    for (size_t shard = 0; shard < shards.size(); ++shard)
      for (size_t c = 0; c < shards[shard].size(); ++c)
        if (!shards[shard][c].rows()) Fetch(static_cast<int>(shard), static_cast<int>(c));
    return absl::OkStatus();
  }
  void LaunchRows(std::span<const push_pull::RowPush> pushes) override {
    ++row_launches;
    for (const auto& [shard, chunk, packed, others] : pushes) {
      auto& [table, updates] = servers_->Rows(shard, chunk);
      const push_pull::PackedRows rows = *push_pull::UnpackRows(packed, kWidth);
      if (!AllFinite(rows.rows)) {  // ShardStore refuses such pushes, too.
        refused_.emplace(shard, chunk);
        continue;
      }
      EXPECT_TRUE(table->Push(rows.keys, rows.rows, learning_rates_[1]).ok());
      staleness[{shard, chunk}] = updates - others;
    }
  }
  // Pulls at once, so the rows include all earlier pushes and no later ones.
  void FetchRows(const std::vector<std::shared_ptr<push_pull::RowFetch>>& fetches) override {
    row_fetches += fetches.empty() ? 0 : 1;
    for (const auto& fetch : fetches) {
      for (push_pull::RowPull& pull : fetch->pulls) {
        auto& [table, updates] = servers_->Rows(pull.shard, pull.chunk);
        EXPECT_TRUE(table->Peek(pull.keys, pull.rows).ok());
        pull.others = updates;
      }
      fetched.push_back(fetch->keys.size());
    }
  }
  absl::Status Await(const push_pull::RowFetch&) override {
    on_wait();
    awaited.push_back(fetched.size());
    return fails;
  }
  void Abort(absl::Status) override {}

  std::vector<uint64_t> sequences;
  std::vector<int> launched;     // The optimizer of each pushed chunk.
  int pulled = 0;                // The number of chunks that were only pulled.
  bool late = false;             // Parameters arrive with TakeLate, after pushes of other workers.
  std::vector<size_t> finished;  // The size of `launched` at each call of Finish.
  std::vector<size_t> fetched;   // The number of keys of each fetch.
  std::vector<size_t> awaited;   // The size of `fetched` at each call of Await.
  int row_fetches = 0, row_launches = 0;  // The number of calls.
  std::map<std::pair<int, int>, int64_t> staleness;
  absl::Status fails;                     // The result of Finish and Await, if not OK.
  std::function<void()> on_wait = [] {};  // Called by each call that waits for servers.

 private:
  void Fetch(int shard, int index) {
    const push_pull::Chunk& chunk = servers_->layout.chunks[shard][index];
    std::vector<float> values(chunk.elements());
    EXPECT_TRUE(servers_->stores[shard]->Pull(index, values).ok());
    int64_t at = 0;
    for (const std::span<float> span : parameters_[shard]) {
      for (size_t i = 0; i < span.size(); ++i, ++at)
        if (at >= chunk.begin && at < chunk.end) span[i] = values[at - chunk.begin];
    }
  }
  Servers* const servers_;
  const std::vector<std::vector<std::span<float>>> parameters_;
  const int worker_;
  std::vector<std::pair<int, int>> waiting_;
  std::set<std::pair<int, int>> refused_;  // Refused chunks of the current push.
  std::vector<std::vector<float>> gradients_;
  std::vector<double> learning_rates_;  // The rates of the current push.
};

inline push_pull::LayoutOptions Small(int servers) {
  push_pull::LayoutOptions options;
  options.servers = servers;
  options.partitioner.kind = push_pull::Partitioner::Kind::kFixed;
  options.partitioner.parts = 2;
  options.chunk_bytes = 8;
  return options;
}

// A worker with one replica. The first worker of a test makes the servers.
class Worker {
 public:
  Worker(Job job, push_pull::LayoutOptions options, std::function<void(TestProgram&)> set_up,
         std::unique_ptr<Servers>* servers, int index = 0)
      : job_(std::move(job)) {
    auto made = Replica::Make(
        job_,
        [&] {
          auto program = std::make_unique<TestProgram>();
          set_up(*program);
          this->program = program.get();
          return program;
        },
        at::kCPU);
    EXPECT_TRUE(made.ok()) << made.status();
    replica = *std::move(made);
    auto served = VariablesToServe(replica.get());
    EXPECT_TRUE(served.ok()) << served.status();
    push_pull::Layout layout = push_pull::MakeLayout(served->specs, options);
    std::vector<RuleSpec> rules;
    for (const Json& optimizer : served->optimizers)
      rules.push_back(ParseOptimizer(optimizer)->rule);
    auto exchange = ParameterExchange::Make(*replica, job_, *std::move(served), layout);
    status = exchange.status();
    if (!exchange.ok()) return;
    exchange_ = *std::move(exchange);
    if (*servers == nullptr)
      *servers = std::make_unique<Servers>(layout, rules, exchange_->parameters());
    replica->set_embedding_store(exchange_.get());
    client = std::make_unique<FakeClient>(servers->get(), exchange_->parameters(), index);
    exchange_->UseClient(client.get());
    EXPECT_TRUE(replica->Attach(exchange_->MakeSinks(), {}).ok());
    StepRunnerOptions runner;
    runner.worker = index;
    runner.global_batch_size = *job_.global_batch_size;
    runner_ = StepRunner::Make(replica.get(), alone_.get(), job_, runner);
  }
  ~Worker() { replica->Detach(); }

  absl::StatusOr<StepResult> Step(const data::Batch& batch, int64_t step,
                                  std::shared_ptr<PrefetchedRows> rows = nullptr) {
    const int64_t examples = batch[0].size(0);
    exchange_->BeginStep(weight, std::move(rows));
    StepPlan plan;
    plan.steps_done = step - 1;
    plan.global_examples = examples;
    auto result =
        runner_->Run(plan, batch, examples,
                     [this](muster::Step& s, const data::Batch& b) { program->train_step(s, b); });
    if (result.ok()) {
      const absl::Status finished = exchange_->FinishStep();
      if (!finished.ok()) return finished;
    }
    return result;
  }

  TestProgram* program = nullptr;
  std::unique_ptr<Replica> replica;
  std::unique_ptr<FakeClient> client;
  absl::Status status;
  double weight = 1;  // The weight of changes of buffers.
  ParameterExchange& exchange() { return *exchange_; }

 private:
  const Job job_;
  std::unique_ptr<collective::Communicator> alone_ =
      std::move(collective::MakeThreadCommunicators(1, std::chrono::seconds(5))[0]);
  std::unique_ptr<ParameterExchange> exchange_;
  std::unique_ptr<StepRunner> runner_;
};

inline Job MakeJob(int64_t batch, int64_t steps) {
  Job job;
  job.program = "test";
  job.global_batch_size = batch;
  job.max_steps = steps;
  job.drop_remainder = true;
  return job;
}

}  // namespace muster::testing
