// A primary's store and its backup over real connections, without the service around them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <list>
#include <map>
#include <set>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "ps/replication/replication.h"
#include "ps/replication/replication_link.h"
#include "tests/unit/ps/forwarding_store.h"
#include "tests/unit/ps/ps_cluster.h"

namespace muster::ps {
namespace {

using ::testing::HasSubstr;
using transport::DataConnection;
using transport::DataListener;

constexpr uint64_t kView = 9;
constexpr int64_t kWidth = 3;

// The backup's own store, which can be made to refuse chunks, and to hang.
class BackupStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  void Refuse(std::set<int> chunks) {
    absl::MutexLock lock(&mu_);
    refused_ = std::move(chunks);
  }
  void Freeze(bool frozen) {
    absl::MutexLock lock(&mu_);
    frozen_ = frozen;
    changed_.SignalAll();
  }
  // Pieces of states that were taken.
  int restored() {
    absl::MutexLock lock(&mu_);
    return restored_;
  }
  void AwaitFrozenCall() {
    absl::MutexLock lock(&mu_);
    while (waiting_ == 0) changed_.Wait(&mu_);  // ctest bounds it
  }

  absl::Status Restore(int chunk, ChunkState state, Piece piece) override {
    {
      absl::MutexLock lock(&mu_);
      ThawLocked();
      ++restored_;
      if (refused_.contains(chunk)) return ConfigurationError(fmt::format("not chunk {}", chunk));
    }
    return ForwardingStore::Restore(chunk, std::move(state), piece);
  }
  absl::StatusOr<push_pull::Pushed> Replay(int chunk, const push_pull::ChunkPush& push,
                                           int64_t number) override {
    {
      absl::MutexLock lock(&mu_);
      ThawLocked();
    }
    return ForwardingStore::Replay(chunk, push, number);
  }

 private:
  void ThawLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ++waiting_;
    changed_.SignalAll();
    while (frozen_) changed_.Wait(&mu_);
    --waiting_;
  }

  absl::Mutex mu_;
  absl::CondVar changed_;
  bool frozen_ ABSL_GUARDED_BY(mu_) = false;
  int waiting_ ABSL_GUARDED_BY(mu_) = 0, restored_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<int> refused_ ABSL_GUARDED_BY(mu_);
};

// Takes the primary's connections and serves them, each on a thread.
class BackupHost {
 public:
  BackupHost(std::shared_ptr<ShardStore> store, ReplicationOptions options)
      : listener_(*DataListener::Create({.bind_address = "127.0.0.1"})) {
    options.abort = &abort_;
    shard_ = BackupShard::Make(std::move(store), options);
    admission_ = listener_->Admit(kView, transport::kAnyone, "ticket");
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~BackupHost() {
    abort_.Set();
    shard_->Close();
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
  }
  // Every connection there is.
  void Cut() {
    absl::MutexLock lock(&mu_);
    for (DataConnection* connection : open_) connection->Shutdown();
  }
  std::string address() const { return listener_->address(); }
  int connections() const { return connections_; }

 private:
  void Accept() {
    for (uint64_t seen = 0; !abort_.is_set();
         listener_->WaitForChange(&seen, std::chrono::milliseconds(20)))
      while (std::unique_ptr<DataConnection> connection = admission_->TakeAny()) {
        ++connections_;
        threads_.emplace_back([this, c = std::move(connection)] {
          {
            absl::MutexLock lock(&mu_);
            open_.insert(c.get());
          }
          (void)shard_->Serve(*c);
          absl::MutexLock lock(&mu_);
          open_.erase(c.get());
        });
      }
  }

  const std::unique_ptr<DataListener> listener_;
  transport::AbortSignal abort_;
  std::shared_ptr<BackupShard> shard_;
  std::unique_ptr<transport::Admission> admission_;
  absl::Mutex mu_;
  std::set<DataConnection*> open_ ABSL_GUARDED_BY(mu_);
  std::atomic<int> connections_ = 0;
  std::list<std::thread> threads_;  // the acceptor's, until it has ended
  std::thread acceptor_;
};

// Chunks 0 to 2 are of variables, 3 and 4 of a table.
class BackupTest : public ::testing::Test {
 protected:
  ~BackupTest() override {
    abort_.Set();
    if (primary_ != nullptr) primary_->Close();
    if (theirs_ != nullptr) theirs_->Freeze(false);
  }
  static bool HasRows(int chunk) { return chunk >= 3; }

  void Make(const RuleSpec& rule) {
    store_options_.chunks = {
        {0, 0, 4, 0}, {0, 4, 1004, 0}, {0, 1004, 1005, 0}, {0, 0, 0, 0, 1}, {0, 0, 0, 0, 1}};
    store_options_.rules = {rule};
    store_options_.tables[1] = {
        .width = kWidth, .initializer = {}, .seed = 9, .rule = rule, .shards = 1};
    local_ = ShardStore::Make(store_options_);
    for (int c = 0; c < kChunks; ++c)
      ASSERT_TRUE(
          local_->Fill(c, std::vector<float>(store_options_.chunks[c].elements(), 10)).ok());
    for (int worker : {0, 1, 2}) local_->Admit(worker, kLife);
    options_.chunks = backup_options_.chunks = kChunks;
    theirs_ = std::make_shared<BackupStore>(ShardStore::Make(store_options_));
  }
  // It begins empty.
  void BeginBackup() {
    host_ = std::make_unique<BackupHost>(theirs_, backup_options_);
    options_.checksum = true;
    options_.abort = &abort_;
    options_.listener = listener_.get();
    options_.backup = 1;
    options_.view = kView;
    options_.ticket = "ticket";
    options_.address = host_->address();
  }
  void Begin() {
    BeginBackup();
    primary_ = ReplicatedStore::Make(local_, options_);
  }
  // Each chunk gets a push; other gradients and keys with other numbers.
  void Push(ShardStore& store, int worker, uint64_t sequence, bool ahead = false) {
    for (int c = 0; c < kChunks; ++c) {
      std::vector<float> gradient(store_options_.chunks[c].elements());
      std::vector<uint64_t> keys;
      if (HasRows(c)) {
        for (uint64_t k = 0; k < 5 + sequence; ++k) keys.push_back(k * k + sequence);
        gradient.resize(keys.size() * kWidth);
      }
      for (size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = 1.0f / static_cast<float>(3 + sequence + i);
      if (HasRows(c)) gradient = push_pull::PackRows(keys, gradient);
      push_pull::ChunkPush push;
      push.key = {worker, kLife, sequence};
      push.learning_rate = 0.1;
      push.gradient = gradient;
      push.ahead = ahead;
      const auto pushed = store.Apply(c, push, {});
      ASSERT_TRUE(pushed.ok()) << pushed.status();
    }
  }
  void AwaitSynced() {
    for (const MonotonicTime until = Clock::now() + kLong; !primary_->synced();) {
      ASSERT_LT(Clock::now(), until) << primary_->last_error();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  // Rows in the order of their keys: where they lie is each store's own affair.
  static ChunkState Copy(const ShardStore& store, int chunk) {
    ChunkState state = *store.Copy(chunk);
    if (!HasRows(chunk)) return state;
    const push_pull::PackedRows packed = *push_pull::UnpackRows(state.parameters, kWidth);
    std::map<uint64_t, size_t> places;
    for (size_t i = 0; i < packed.keys.size(); ++i) places[packed.keys[i]] = i;
    const auto sorted = [&](std::span<const float> rows) {
      std::vector<float> all;
      for (const auto& [key, place] : places) {
        const auto row = rows.subspan(place * kWidth, kWidth);
        all.insert(all.end(), row.begin(), row.end());
      }
      return all;
    };
    std::vector<uint64_t> keys;
    for (const auto& [key, place] : places) keys.push_back(key);
    for (std::vector<float>& slot : state.slots) slot = sorted(slot);
    state.parameters = push_pull::PackRows(keys, sorted(packed.rows));
    return state;
  }
  void ExpectSame() const {
    for (int c = 0; c < kChunks; ++c) EXPECT_EQ(Copy(*theirs_, c), Copy(*local_, c)) << c;
  }

  static constexpr int kChunks = 5;
  ShardStore::Options store_options_;
  ReplicationOptions options_, backup_options_;  // the primary's, the backup's
  const std::unique_ptr<DataListener> listener_ =
      *DataListener::Create({.bind_address = "127.0.0.1"});
  transport::AbortSignal abort_;
  std::shared_ptr<ShardStore> local_;
  std::shared_ptr<BackupStore> theirs_;
  std::unique_ptr<BackupHost> host_;
  std::shared_ptr<ReplicatedStore> primary_;
};

TEST_F(BackupTest, RowsAndTheirSlotsAreBroughtUpToDate) {
  for (const RuleSpec& rule :
       {RuleSpec(SgdSpec{}), ParseOptimizer(Json("adagrad"))->rule,
        ParseOptimizer(Json("adam"))->rule, ParseOptimizer(Json("ftrl"))->rule}) {
    if (primary_ != nullptr) primary_->Close();
    Make(rule);
    for (uint64_t n = 1; n <= 3; ++n) Push(*local_, 0, n);
    Begin();
    AwaitSynced();
    ASSERT_EQ(theirs_->chunk_version(4).updates, 3);
    ExpectSame();
    for (uint64_t n = 4; n <= 6; ++n) Push(*primary_, 0, n);
    EXPECT_EQ(theirs_->chunk_version(4).updates, 6);
    ExpectSame();
  }
}

TEST_F(BackupTest, AChunkThatIsRefusedKeepsNoOtherOneWaiting) {
  Make(SgdSpec{});
  theirs_->Refuse({0, 2});
  Begin();
  const MonotonicTime until = Clock::now() + kLong;
  for (const int chunk : {1, 3, 4})
    while (theirs_->chunk_version(chunk).updates < 0 && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  for (const int chunk : {1, 3, 4}) EXPECT_EQ(theirs_->chunk_version(chunk).updates, 0) << chunk;
  EXPECT_FALSE(primary_->synced());
  EXPECT_THAT(primary_->last_error(), HasSubstr("not chunk"));
  theirs_->Refuse({});
  AwaitSynced();
  EXPECT_EQ(primary_->last_error(), "");
  ExpectSame();
}

TEST_F(BackupTest, ConnectionsLastHoweverLongNothingIsSaid) {
  Make(SgdSpec{});
  backup_options_.stall = std::chrono::seconds(1);
  Begin();
  AwaitSynced();
  Push(*primary_, 0, 1);
  const int before = host_->connections();
  std::this_thread::sleep_for(backup_options_.stall + std::chrono::milliseconds(300));
  Push(*primary_, 0, 2);
  ASSERT_TRUE(primary_->Restore(0, *local_->Copy(0)).ok());  // over the handovers' own connection
  AwaitSynced();
  EXPECT_EQ(host_->connections(), before);
  EXPECT_EQ(theirs_->chunk_version(0).updates, 2);
  ExpectSame();
}

TEST_F(BackupTest, OneThatCountsIsSetBackBeforeThatIsAnswered) {
  Make(SgdSpec{});
  Begin();
  AwaitSynced();
  theirs_->Freeze(true);
  std::atomic<bool> done = false;
  std::thread chief([&] {
    EXPECT_TRUE(primary_->Fill(0, std::vector<float>(4, 7)).ok());
    done = true;
  });
  theirs_->AwaitFrozenCall();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it would be done by now
  EXPECT_FALSE(done);
  theirs_->Freeze(false);
  chief.join();
  ExpectSame();
  // The new view does not come.
  primary_->Close();
  EXPECT_FALSE(primary_->Fill(0, std::vector<float>(4, 8)).ok());
}

// It takes connections, and answers nothing.
TEST_F(BackupTest, OneThatHangsWhileItCatchesUpHoldsNobodyUp) {
  Make(SgdSpec{});
  options_.hold = std::chrono::milliseconds(100);
  options_.stall = std::chrono::minutes(4);
  theirs_->Freeze(true);
  Begin();
  theirs_->AwaitFrozenCall();
  const MonotonicTime begin = Clock::now();
  for (uint64_t n = 1; n <= 3; ++n) Push(*primary_, 0, n);
  EXPECT_LT(Clock::now() - begin, options_.stall / 4);
  EXPECT_FALSE(primary_->synced());
  theirs_->Freeze(false);
  AwaitSynced();
  EXPECT_EQ(theirs_->chunk_version(0).updates, 3);
  ExpectSame();
}

TEST_F(BackupTest, OneThatHangsAfterMostChunksHaveArrivedHoldsUpOneUpdate) {
  Make(SgdSpec{});
  options_.hold = std::chrono::seconds(2);
  theirs_->Refuse({4});  // so that it does not count yet
  Begin();
  for (int c = 0; c < 4; ++c)
    while (theirs_->chunk_version(c).updates < 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // ctest bounds it
  Push(*primary_, 0, 1);
  theirs_->Freeze(true);
  theirs_->AwaitFrozenCall();
  int held_up = 0;  // One, and one or two more on a busy machine. Not all six.
  for (uint64_t n = 2; n <= 7; ++n) {
    const MonotonicTime begin = Clock::now();
    Push(*primary_, 0, n);
    held_up += Clock::now() - begin >= options_.hold ? 1 : 0;
  }
  EXPECT_LE(held_up, 3);
  theirs_->Refuse({});
  theirs_->Freeze(false);
  AwaitSynced();
  EXPECT_EQ(theirs_->chunk_version(0).updates, 7);
  ExpectSame();
}

TEST_F(BackupTest, UpdatesLeaveWithoutWaitingForThoseBefore) {
  Make(ParseOptimizer(Json("adam"))->rule);
  Begin();
  AwaitSynced();
  theirs_->Freeze(true);
  for (uint64_t n = 1; n <= 5; ++n) Push(*primary_, 0, n, /*ahead=*/true);
  EXPECT_EQ(local_->chunk_version(4).updates, 5);
  EXPECT_EQ(theirs_->chunk_version(4).updates, 0);
  std::atomic<bool> acknowledged = false;
  std::thread worker([&] {
    for (int c = 0; c < kChunks; ++c) EXPECT_TRUE(primary_->Await(c).ok());
    acknowledged = true;
  });
  theirs_->AwaitFrozenCall();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it would have come by now
  EXPECT_FALSE(acknowledged);
  theirs_->Freeze(false);
  worker.join();
  ExpectSame();
}

// Both sides round gradients of 32 bits.
TEST_F(BackupTest, WithCompressionBothHoldTheSameBits) {
  for (const push_pull::Compression compression :
       {push_pull::Compression::kBFloat16, push_pull::Compression::kFloat16}) {
    if (primary_ != nullptr) primary_->Close();
    Make(ParseOptimizer(Json("adam"))->rule);
    const auto exact = std::exchange(local_, ShardStore::Make(store_options_));
    for (int c = 0; c < kChunks; ++c)
      ASSERT_TRUE(
          local_->Fill(c, std::vector<float>(store_options_.chunks[c].elements(), 10)).ok());
    for (int worker : {0, 1, 2}) local_->Admit(worker, kLife);
    options_.compression = compression;
    Begin();
    AwaitSynced();
    for (uint64_t n = 1; n <= 3; ++n) {
      Push(*primary_, 0, n);
      Push(*exact, 0, n);
    }
    ExpectSame();
    for (int c = 0; c < kChunks; ++c) {
      const ChunkState rounded = Copy(*local_, c), whole = Copy(*exact, c);
      EXPECT_NE(rounded.parameters, whole.parameters) << c << ": gradients were rounded";
      ASSERT_EQ(rounded.parameters.size(), whole.parameters.size()) << c;
      if (!HasRows(c)) {
        EXPECT_NEAR(rounded.parameters[0], whole.parameters[0], 0.01) << c;
      }
    }
  }
}

TEST_F(BackupTest, AConnectionThatFailsLosesNothing) {
  Make(ParseOptimizer(Json("adam"))->rule);
  Begin();
  AwaitSynced();
  std::atomic<bool> end = false;
  std::vector<std::thread> workers;
  for (int worker : {0, 1, 2})
    workers.emplace_back([&, worker] {
      for (uint64_t n = 1; !end; ++n) {
        Push(*primary_, worker, n, /*ahead=*/n % 2 == 0);
        for (int c = 0; n % 2 == 0 && c < kChunks; ++c) EXPECT_TRUE(primary_->Await(c).ok());
      }
    });
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    host_->Cut();
  }
  end = true;
  for (std::thread& worker : workers) worker.join();
  // The acknowledged updates are present without a wait.
  ExpectSame();
  AwaitSynced();
}

TEST_F(BackupTest, WhatTheBackupHasIsNotHandedOverAgain) {
  Make(SgdSpec{});
  Begin();
  AwaitSynced();
  Push(*primary_, 0, 1);
  const int before = theirs_->restored();
  host_->Cut();
  Push(*primary_, 0, 2);  // finds out
  AwaitSynced();
  ExpectSame();
  EXPECT_LE(theirs_->restored(), before + 2) << "a chunk of each connection";
  const int after = theirs_->restored();
  ASSERT_TRUE(primary_->Restore(0, *local_->Copy(0)).ok());
  EXPECT_EQ(theirs_->restored(), after + 1);
}

// It may still be read when the primary has opened another one.
TEST_F(BackupTest, WhatIsLeftOfAnOlderConnectionChangesNothing) {
  Make(SgdSpec{});
  BeginBackup();
  ReplicaDialer dialer(options_);
  std::vector<ShardStore::ChunkVersion> versions;
  const auto older = *dialer.Dial(Clock::now() + kLong, &versions);
  const auto newer = *dialer.Dial(Clock::now() + kLong, &versions);
  ASSERT_EQ(versions, std::vector<ShardStore::ChunkVersion>(kChunks));
  const auto hand_over = [&](ReplicaLink& link, float value) {
    ChunkState state = *local_->Copy(0);
    state.parameters.assign(4, value);
    const std::string bytes = EncodeState(state);
    const auto sent = link.Send(ReplicaKind::kState, {}, {std::as_bytes(std::span(bytes))}, kLong);
    return sent.ok() ? link.Await(*sent) : sent.status();
  };
  EXPECT_TRUE(hand_over(*older, 1).ok());
  EXPECT_TRUE(hand_over(*newer, 2).ok());
  EXPECT_THAT(std::string(Message(hand_over(*older, 3))), HasSubstr("another connection"));
  EXPECT_EQ(theirs_->Copy(0)->parameters, std::vector<float>(4, 2));
}

}  // namespace
}  // namespace muster::ps
