// The state on its way from its owner to the others: in pieces, and whole or none wherever somebody
// is lost.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <numeric>
#include <thread>

#include "common/collective/group/formation.h"
#include "common/train/state/loop_state.h"
#include "tests/unit/train/test_program.h"
#include "tests/unit/train/watched_communicator.h"

namespace muster {
namespace {

using push_pull::EmbeddingTable;
using testing::TestProgram;
using testing::WatchedCommunicator;

Job MakeJob() {
  Job job;
  job.program = "test";
  job.global_batch_size = 4;
  job.epochs = 1;
  return job;
}

constexpr int kRows = 3000, kWidth = 200;  // of a table: more than one piece

// A program with tensors of several types, a large one and one that is not contiguous, all of
// `value`; with `tables`, one of these too.
std::unique_ptr<Replica> MakeReplica(double value, bool tables = false) {
  static const Job job = MakeJob();  // outlives the replica
  auto replica = Replica::Make(
      job,
      [=] {
        auto program = std::make_unique<TestProgram>();
        program->on_build = [=](TestProgram& self, Builder& builder) {
          self.model->parameter("large", at::full({10, 100}, value));
          self.model->parameter("turned",
                                (at::arange(1200).reshape({30, 40}) * value).t().to(at::kFloat));
          self.model->buffer("small", at::full({3}, static_cast<int64_t>(value), at::kLong));
          self.model->buffer("none", at::zeros({0}));
          builder.model("net", self.model);
          builder.optimizer("sgd", {"net"}, {{"name", "sgd"}, {"momentum", 0.9}}, 0.1);
          builder.dataset(Split::kTrain, testing::Tensors2(at::ones({2, 1}), at::ones({2})));
          if (!tables) return;
          EmbeddingOptions options;
          options.width = kWidth;
          options.optimizer = "sgd";
          self.embeddings["rows"] = builder.embedding("rows", options);
        };
        return program;
      },
      at::kCPU);
  EXPECT_TRUE(replica.ok()) << replica.status();
  if (tables) {
    EmbeddingTable& table = (*replica)->tables().table(0);
    const std::vector<float> row(static_cast<size_t>(table.row_elements()),
                                 static_cast<float>(value));
    for (uint64_t key = 0; key < kRows; ++key) EXPECT_TRUE(table.Restore(key, row).ok());
    table.set_updates(static_cast<int64_t>(value));
  }
  return *std::move(replica);
}

LoopState StateAfter(const Replica& replica, int64_t steps) {
  LoopState state = InitialLoopState(MakeJob(), replica);
  state.step = steps;
  state.extras.datasets["more"] = {steps, 3, true};
  return state;
}

bool Equal(const Replica& a, const Replica& b) {
  const auto mine = a.replicated_state(), others = b.replicated_state();
  for (size_t i = 0; i < mine.size(); ++i)
    if (!at::equal(mine[i], others[i])) return false;
  return mine.size() == others.size() && a.tables().Digest() == b.tables().Digest();
}

struct Ends {
  absl::Status sent, received;
  int64_t most = 0;
};
// From rank 0 to rank 1; the link is cut at this operation of the owner's, or of the receiver's.
Ends Transfer(Replica* from, LoopState* newest, Replica* to, LoopState* old,
              const TransferOptions& options, int owner_breaks, int receiver_breaks) {
  auto communicators = collective::MakeThreadCommunicators(2, std::chrono::seconds(20));
  WatchedCommunicator first(std::move(communicators[0])), second(std::move(communicators[1]));
  first.breaks_at = owner_breaks;
  second.breaks_at = receiver_breaks;
  Ends ends;
  std::thread other([&] {
    ends.received =
        CatchProgramErrors("there", [&] { BroadcastState(to, &second, 0, old, options); });
  });
  ends.sent = CatchProgramErrors("here", [&] { BroadcastState(from, &first, 0, newest, options); });
  other.join();
  ends.most = first.most;
  return ends;
}

struct Interrupted {
  int void_states = 0, kept = 0, came = 0;  // what the receiver was left with, counted
};

// Cuts the link at one operation after the other, until the transfer comes to its end. `old_steps`:
// what the receiver holds.
Interrupted CutEverywhere(bool tables, int64_t old_steps, int64_t staged_bytes, bool at_owner) {
  TransferOptions options;
  options.piece_bytes = 256;
  options.staged_bytes = staged_bytes;
  const auto owner = MakeReplica(7, tables), untouched = MakeReplica(2, tables);
  Interrupted seen;
  for (int at = 0; seen.came == 0 && at < 200; ++at) {
    const auto behind = MakeReplica(2, tables);
    LoopState newest = StateAfter(*owner, 12), old = StateAfter(*behind, old_steps);
    const Ends ends = Transfer(owner.get(), &newest, behind.get(), &old, options,
                               at_owner ? at : -1, at_owner ? -1 : at);
    EXPECT_EQ(newest.last_step(), 12) << "the owner keeps its state, cut at " << at;
    EXPECT_TRUE(Equal(*owner, *MakeReplica(7, tables))) << at;
    EXPECT_TRUE(old.whole || !ends.received.ok()) << at;
    if (old.last_step() == 12) {
      EXPECT_TRUE(Equal(*behind, *owner)) << "called the state after step 12, cut at " << at;
      EXPECT_TRUE(old.tables_whole && old.extras == newest.extras) << at;
      if (ends.sent.ok() && ends.received.ok()) ++seen.came;
    } else if (old.last_step() == old_steps) {
      EXPECT_TRUE(Equal(*behind, *untouched)) << "called the one before, cut at " << at;
      EXPECT_TRUE(old.tables_whole) << at;
      ++seen.kept;
    } else {
      EXPECT_EQ(old.last_step(), -1) << at;
      ++seen.void_states;
    }
  }
  EXPECT_EQ(seen.came, 1) << "the transfer never came to its end";
  return seen;
}

TEST(StateTransfer, TravelsInPieces) {
  for (const int64_t staged : {int64_t{0}, int64_t{256} << 20}) {
    const auto owner = MakeReplica(7), behind = MakeReplica(2);
    LoopState newest = StateAfter(*owner, 12), old = StateAfter(*behind, 11);
    int moments = 0;
    TransferOptions options;
    options.piece_bytes = 256;
    options.staged_bytes = staged;
    // The owner's thread; the other one has moments of its own.
    options.moment = [&, here = std::this_thread::get_id()] {
      if (std::this_thread::get_id() == here) ++moments;
    };
    const Ends ends = Transfer(owner.get(), &newest, behind.get(), &old, options, -1, -1);
    ASSERT_TRUE(ends.sent.ok() && ends.received.ok()) << ends.sent << ends.received;
    EXPECT_LE(ends.most, 256);
    EXPECT_GT(moments, 30) << "before the first piece, and after each";
    EXPECT_EQ(old.step, 12);
    EXPECT_TRUE(Equal(*behind, *owner));
  }
}

TEST(StateTransfer, ASmallOlderStateIsKeptUntilTheNewerOneIsThere) {
  for (const bool at_owner : {true, false}) {
    const Interrupted seen = CutEverywhere(false, 11, 1 << 20, at_owner);
    EXPECT_GT(seen.kept, 30);
    EXPECT_EQ(seen.void_states, 0);
  }
}

// The tensors of two steps are no state, whichever end is lost.
TEST(StateTransfer, ALargeOlderStateIsNoneUntilTheNewerOneIsThere) {
  for (const bool at_owner : {true, false}) {
    const Interrupted seen = CutEverywhere(false, 11, 0, at_owner);
    EXPECT_GT(seen.void_states, 30);
    EXPECT_GT(seen.kept, 0) << "as long as numbers alone travel";
  }
}

TEST(StateTransfer, HalfATableIsNone) {
  for (const bool at_owner : {true, false}) {
    const Interrupted seen = CutEverywhere(true, 11, int64_t{256} << 20, at_owner);
    EXPECT_GT(seen.void_states, 30);
    EXPECT_GT(seen.kept, 0);
  }
}

// It could take the owner's place at any moment.
TEST(StateTransfer, WhoHoldsTheSameStepNeverLosesIt) {
  for (const bool tables : {false, true}) {
    TransferOptions options;
    options.piece_bytes = 256;
    options.staged_bytes = 0;
    const auto owner = MakeReplica(7, tables), same = MakeReplica(7, tables);
    for (int at = 0; at < 60; ++at) {
      LoopState newest = StateAfter(*owner, 12), mine = StateAfter(*same, 12);
      (void)Transfer(owner.get(), &newest, same.get(), &mine, options, at, -1);
      EXPECT_EQ(mine.last_step(), 12) << at;
      EXPECT_TRUE(mine.tables_whole) << at;
      EXPECT_TRUE(Equal(*same, *owner)) << at;
    }
  }
}

// The next transfer replaces one that was interrupted.
TEST(StateTransfer, AReplicaWithoutAStateIsGivenOne) {
  TransferOptions options;
  options.staged_bytes = 0;
  const auto owner = MakeReplica(7, true), behind = MakeReplica(2, true);
  LoopState newest = StateAfter(*owner, 12), old = StateAfter(*behind, 12);
  old.whole = old.tables_whole = false;  // of step 12 as well, by its number
  const Ends ends = Transfer(owner.get(), &newest, behind.get(), &old, options, -1, -1);
  ASSERT_TRUE(ends.sent.ok() && ends.received.ok()) << ends.sent << ends.received;
  EXPECT_EQ(old.last_step(), 12);
  EXPECT_TRUE(old.tables_whole);
  EXPECT_TRUE(Equal(*behind, *owner));
}

// Keys that are not admitted yet are counted alike by all, the new one too: else the next updates
// would make rows here and none there.
TEST(StateTransfer, ACappedTableCountsOnWhereItsOwnerIs) {
  static const Job job = MakeJob();
  const auto make = [&] {
    auto replica = Replica::Make(
        job,
        [] {
          auto program = std::make_unique<TestProgram>();
          program->on_build = [](TestProgram& self, Builder& builder) {
            builder.model("net", self.model);
            EmbeddingOptions options;
            options.width = 2;
            options.optimizer = "sgd";
            options.max_rows = 64;
            options.eviction = "least_frequent";
            options.admit_after = 3;
            self.embeddings["rows"] = builder.embedding("rows", options);
            builder.dataset(Split::kTrain, testing::Tensors2(at::ones({2, 1}), at::ones({2})));
          };
          return program;
        },
        at::kCPU);
    EXPECT_TRUE(replica.ok()) << replica.status();
    return *std::move(replica);
  };
  const auto owner = make(), behind = make();
  EmbeddingTable& from = owner->tables().table(0);
  const auto update = [](EmbeddingTable& table, std::vector<uint64_t> keys) {
    const std::vector<float> gradients(2 * keys.size(), 1.0f);
    EXPECT_TRUE(table.Push(keys, gradients, 0.1).ok());
  };
  std::vector<uint64_t> all(40);
  std::iota(all.begin(), all.end(), 100);
  update(from, all);
  update(from, {100, 101, 102});
  update(from, {100, 101});
  ASSERT_EQ(from.size(), 2) << "admitted in their third update";
  ASSERT_EQ(from.Counted().size(), 2 * 38u);
  update(behind->tables().table(0), {100, 7});  // of a state that is of no use
  LoopState newest = StateAfter(*owner, 12), old = StateAfter(*behind, 3);
  const Ends ends = Transfer(owner.get(), &newest, behind.get(), &old, {}, -1, -1);
  ASSERT_TRUE(ends.sent.ok() && ends.received.ok()) << ends.sent << ends.received;
  EmbeddingTable& to = behind->tables().table(0);  // another one than before
  EXPECT_EQ(to.Counted(), from.Counted());
  EXPECT_TRUE(Equal(*behind, *owner));
  for (EmbeddingTable* table : {&from, &to}) {
    update(*table, {102, 103});
    EXPECT_EQ(table->size(), 3) << "102 has come three times, 103 twice";
  }
  EXPECT_TRUE(Equal(*behind, *owner));
}

// State that no other replica needs is not copied.
TEST(StateTransfer, StaysWhereItIsInOneReplicaAlone) {
  WatchedCommunicator alone(
      std::move(collective::MakeThreadCommunicators(1, std::chrono::seconds(20))[0]));
  const auto replica = MakeReplica(7);
  LoopState state = StateAfter(*replica, 12);
  BroadcastState(replica.get(), &alone, 0, &state, {});
  EXPECT_EQ(alone.most, 0);
  EXPECT_EQ(state.step, 12);
}

}  // namespace
}  // namespace muster
