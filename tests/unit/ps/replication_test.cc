#include "ps/replication/replication.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/push_pull/client.h"
#include "ps/replication/replication_wire.h"
#include "tests/unit/base/becomes.h"
#include "tests/unit/ps/ps_cluster.h"

namespace muster::ps {
namespace {

using push_pull::PushPullClient;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::Becomes;

constexpr uint64_t ViewNumber(int n) { return 1ull << 32 | n; }

// Where a shard lies.
struct At {
  int primary = -1, backup = -1;
  bool in_sync = false;
};

// Two ps tasks, what the chief tells them, and the workers of them.
class ReplicationTest : public ::testing::Test {
 protected:
  ReplicationTest() {
    job_.parameter_server =
        R"({"chunk_bytes": 256, "partitioner": {"name": "fixed", "parts": 2}, "copies": 2,
            "checksum": true})";
    for (int task : {0, 1}) Start(task);
  }
  ~ReplicationTest() override {
    {
      absl::MutexLock lock(&mu_);
      over_ = true;
      changed_.SignalAll();
    }
    clients_.clear();
    for (auto& ps : ps_) ps.reset();
  }

  void Start(int task) {
    PsServiceOptions options;
    options.task = task;
    options.new_view = std::chrono::seconds(60);
    ps_[task] = std::make_unique<TestPs>(options);
    ASSERT_TRUE(ps_[task]->Create(job_.Create(task)).ok());
    std::map<int, uint64_t> workers;
    for (int w = 0; w < 3; ++w) workers[w] = kLife + w;
    ASSERT_TRUE(ps_[task]->SetWorkers(workers, 1).ok());
  }
  // Both copies, as a chief does at the start.
  void Fill(float value) {
    for (int task : {0, 1})
      for (int shard : {0, 1}) ASSERT_TRUE(ps_[task]->Fill(Content(job_, shard, value)).ok());
  }
  proto::View View(int number, const std::vector<At>& places) {
    proto::View view;
    view.set_number(ViewNumber(number));
    view.set_ticket("ticket");
    for (int shard : {0, 1}) {
      const At& at = places[shard];
      proto::ShardPlace& place = *view.add_shards();
      place.set_shard(shard);
      place.set_primary(at.primary);
      if (at.primary >= 0) place.set_primary_address(addresses_[at.primary]);
      place.set_backup(at.backup);
      if (at.backup >= 0) place.set_backup_address(addresses_[at.backup]);
      place.set_backup_in_sync(at.in_sync);
    }
    return view;
  }
  // To all ps that are there, then to the workers.
  void SetView(int number, const std::vector<At>& places) {
    for (int task : {0, 1})
      if (ps_[task] != nullptr) addresses_[task] = ps_[task]->address();
    const proto::View view = View(number, places);
    for (const auto& ps : ps_)
      if (ps != nullptr) {
        ASSERT_TRUE(ps->SetView(view).ok());
      }
    absl::MutexLock lock(&mu_);
    view_ = view;
    changed_.SignalAll();
  }
  absl::StatusOr<push_pull::ClientView> NextView(uint64_t newer_than) {
    absl::MutexLock lock(&mu_);
    while (!over_ && view_.number() <= newer_than) changed_.Wait(&mu_);  // ctest bounds it
    if (over_) return Superseded("the test is over");
    push_pull::ClientView view{view_.number(), view_.ticket(), {}};
    for (const proto::ShardPlace& place : view_.shards())
      view.shards.push_back({place.primary(), place.primary_address(), ""});
    return view;
  }

  struct Client {
    std::vector<std::vector<float>> parameters;
    std::unique_ptr<PushPullClient> client;
  };
  PushPullClient& MakeClient(int worker) {
    auto owned = std::make_unique<Client>();
    push_pull::ClientOptions options;
    options.worker = worker;
    options.incarnation = kLife + worker;
    options.layout = job_.layout();
    options.digest = job_.digest();
    options.options = *push_pull::ParseParameterServer(*ParseJson(job_.parameter_server, "test"));
    options.listener = listener_.get();
    options.host_id = "worker";
    options.next_view = [this](uint64_t newer_than) { return NextView(newer_than); };
    for (const int64_t elements : options.layout.elements) owned->parameters.emplace_back(elements);
    for (std::vector<float>& p : owned->parameters) options.parameters.push_back({std::span(p)});
    owned->client = *PushPullClient::Make(std::move(options));
    clients_.push_back(std::move(owned));
    return *clients_.back()->client;
  }
  void Push(PushPullClient& client, uint64_t sequence, float gradient) {
    const push_pull::Layout layout = job_.layout();
    client.Begin(sequence, 0, {1});
    for (int shard : {0, 1}) {
      std::ranges::fill(client.gradients(shard), gradient);
      for (size_t c = 0; c < layout.chunks[shard].size(); ++c)
        client.Launch(shard, static_cast<int>(c));
    }
    const auto outcome = client.Finish();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
  }

  // Workers that push until the test ends them.
  class Load {
   public:
    Load(ReplicationTest* test, int workers, std::function<float(int, uint64_t)> gradient)
        : test_(test) {
      for (int w = 0; w < workers; ++w) {
        PushPullClient& client = test->MakeClient(w);
        clients_.push_back(&client);
        threads_.emplace_back([this, w, &client, gradient] {
          for (uint64_t n = 1; !end_; ++n) {
            test_->Push(client, n, gradient(w, n));
            ++pushes_;
          }
        });
      }
    }
    ~Load() { End(); }
    // Waits for this many more pushes. Where they do not come, ends the workers, so that the test
    // can end.
    ::testing::AssertionResult Await(int64_t more) {
      const int64_t begin = pushes_;
      if (Becomes([&] { return pushes_ >= begin + more; })) return ::testing::AssertionSuccess();
      const int64_t came = pushes_ - begin;
      end_ = true;
      for (PushPullClient* const client : clients_)
        client->Abort(DeadlinePassed("the pushes did not come"));
      return ::testing::AssertionFailure() << came << " of " << more << " pushes came in a minute";
    }
    // How many pushes there were.
    int64_t End() {
      end_ = true;
      for (std::thread& thread : threads_) thread.join();
      threads_.clear();
      return pushes_;
    }

   private:
    ReplicationTest* const test_;
    std::vector<PushPullClient*> clients_;
    std::atomic<bool> end_ = false;
    std::atomic<int64_t> pushes_ = 0;
    std::vector<std::thread> threads_;
  };

  std::vector<ChunkState> States(int task, int shard) {
    std::vector<ChunkState> states;
    EXPECT_TRUE(ps_[task]->Cut("states").ok());
    const auto chunks = ps_[task]->Read("states", shard);
    EXPECT_TRUE(chunks.ok()) << chunks.status();
    if (!chunks.ok()) return states;
    for (const proto::ChunkContent& chunk : *chunks) states.push_back(StateOf(chunk));
    EXPECT_EQ(states.size(), job_.layout().chunks[shard].size());
    return states;
  }
  ChunkState StateOf(const proto::ChunkContent& content) const {
    ShardSpec spec;
    spec.layout = job_.layout();
    spec.rules = {ParseOptimizer(*ParseJson(job_.optimizer, "test"))->rule};
    return *ps::StateOf(content, spec);
  }
  // Whole pushes of ones at a learning rate of 1: what is lost, or there twice, shows.
  void ExpectUpdates(int task, int shard, int64_t updates, float begin) {
    for (const ChunkState& state : States(task, shard)) {
      EXPECT_EQ(state.updates, updates) << "shard " << shard;
      EXPECT_THAT(state.parameters, Each(begin - static_cast<float>(updates)));
    }
  }
  void AwaitSynced(int task, int shard) {
    for (const MonotonicTime until = In(kLong); Clock::now() < until;) {
      const auto beat = ps_[task]->Beat();
      ASSERT_TRUE(beat.ok()) << beat.status();
      if (std::ranges::find(beat->synced(), shard) != beat->synced().end()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    FAIL() << "shard " << shard << ": " << ps_[task]->Beat()->backup_error();
  }

  static float One(int, uint64_t) { return 1; }

  const std::unique_ptr<transport::DataListener> listener_ =
      *transport::DataListener::Create({.bind_address = "127.0.0.1"});
  TestJob job_;
  std::array<std::unique_ptr<TestPs>, 2> ps_;
  std::array<std::string, 2> addresses_;
  std::vector<std::unique_ptr<Client>> clients_;
  absl::Mutex mu_;
  absl::CondVar changed_;
  proto::View view_;
  bool over_ = false;
};

const std::vector<At> kBoth = {{0, 1, true}, {1, 0, true}};
const std::vector<At> kOnly0 = {{0}, {0}}, kOnly1 = {{1}, {1}};
const std::vector<At> kAllOn0 = {{0, 1, true}, {0, 1, true}};
const std::vector<At> kCatchUp0 = {{1, 0, false}, {1, 0, false}};
const std::vector<At> kCatchUp1 = {{0, 1, false}, {0, 1, false}};

TEST_F(ReplicationTest, ABackupHoldsTheSameBitsInTheSameOrder) {
  for (auto& ps : ps_) ps.reset();
  job_.optimizer = R"({"name": "sgd", "momentum": 0.9})";  // the order of updates shows
  for (int task : {0, 1}) Start(task);
  Fill(1);
  SetView(1, kBoth);
  {
    Load load(this, 3, [](int worker, uint64_t n) { return 1.0f / (worker + 3 + n); });
    ASSERT_TRUE(load.Await(100));
  }
  std::vector<std::vector<ChunkState>> before;
  for (int task : {0, 1}) {
    AwaitSynced(task, task);
    EXPECT_THAT(ps_[task]->Beat()->serving(), ElementsAre(0, 1));
    before.push_back(States(task, task));
  }
  SetView(2, {{1}, {0}});
  EXPECT_EQ(States(1, 0), before[0]);
  EXPECT_EQ(States(0, 1), before[1]);
}

TEST_F(ReplicationTest, WhatIsNotFiniteReachesNoBackup) {
  Fill(1000);
  SetView(1, kBoth);
  PushPullClient& client = MakeClient(0);
  for (uint64_t n = 1; n <= 20; ++n) Push(client, n, n % 2 == 0 ? std::nanf("") : 1.f);
  for (int shard : {0, 1}) {
    AwaitSynced(shard, shard);
    ExpectUpdates(shard, shard, 10, 1000);
  }
  SetView(2, {{1}, {0}});
  for (int shard : {0, 1}) ExpectUpdates(1 - shard, shard, 10, 1000);
}

TEST_F(ReplicationTest, LossOfAServerLosesNoAcknowledgedUpdate) {
  for (const int lost : {0, 1}) {
    clients_.clear();
    for (auto& ps : ps_) ps.reset();
    for (int task : {0, 1}) Start(task);
    Fill(1000);
    SetView(10 * lost + 1, kBoth);
    Load load(this, 3, One);
    ASSERT_TRUE(load.Await(30 + 7 * lost));
    ps_[lost].reset();
    SetView(10 * lost + 2, lost == 0 ? kOnly1 : kOnly0);
    ASSERT_TRUE(load.Await(30));
    const int64_t pushes = load.End();
    for (int shard : {0, 1}) ExpectUpdates(1 - lost, shard, pushes, 1000);
  }
}

TEST_F(ReplicationTest, AReturningServerCatchesUpUnderLoadAndTakesOver) {
  Fill(5000);
  int view = 0;
  SetView(++view, kOnly0);
  Load load(this, 3, One);
  ASSERT_TRUE(load.Await(10));
  // Each loses all that it held, is filled by the other one, and takes its place.
  for (int round = 0; round < 4; ++round) {
    const int primary = round % 2, backup = 1 - primary;
    ps_[backup].reset();
    Start(backup);
    SetView(++view, primary == 0 ? kCatchUp1 : kCatchUp0);
    for (int shard : {0, 1}) AwaitSynced(primary, shard);
    EXPECT_THAT(ps_[backup]->Beat()->serving(), ElementsAre(0, 1));
    ASSERT_TRUE(load.Await(20));
    if (round >= 2) SetView(++view, {{primary, backup, true}, {primary, backup, true}});
    ps_[primary].reset();
    SetView(++view, primary == 0 ? kOnly1 : kOnly0);
    ASSERT_TRUE(load.Await(20));
  }
  const int64_t pushes = load.End();
  for (int shard : {0, 1}) ExpectUpdates(0, shard, pushes, 5000);
}

TEST_F(ReplicationTest, NewViewsOfTheSamePlacesLoseNothing) {
  Fill(5000);
  SetView(1, kAllOn0);
  Load load(this, 3, One);
  for (int view = 2; view < 30; ++view) {
    ASSERT_TRUE(load.Await(3));
    SetView(view, kAllOn0);
  }
  ASSERT_TRUE(load.Await(3));
  ps_[0].reset();
  SetView(30, kOnly1);
  ASSERT_TRUE(load.Await(3));
  const int64_t pushes = load.End();
  for (int shard : {0, 1}) ExpectUpdates(1, shard, pushes, 5000);
}

TEST_F(ReplicationTest, WithoutItsBackupAPrimaryAcknowledgesNothingUntilThereIsANewView) {
  Fill(100);
  SetView(1, kAllOn0);
  PushPullClient& client = MakeClient(0);
  Push(client, 1, 1);
  ps_[1].reset();
  std::atomic<bool> done = false;
  std::thread worker([&] {
    Push(client, 2, 1);
    done = true;
  });
  EXPECT_TRUE(Becomes([&] { return !ps_[0]->Beat()->backup_error().empty(); }));
  EXPECT_THAT(ps_[0]->Beat()->backup_error(), HasSubstr("on ps 1 cannot be brought up to date"));
  const auto both_wait = [&] {
    const auto waiting = ps_[0]->Beat()->waiting();
    return waiting.contains(0) && waiting.contains(1) && waiting.at(0) > 0.3 && waiting.at(1) > 0.3;
  };
  EXPECT_TRUE(Becomes(both_wait)) << "in both shards for 0.3 s";
  EXPECT_FALSE(done);
  SetView(2, kCatchUp1);
  worker.join();
  EXPECT_TRUE(ps_[0]->Beat()->waiting().empty());
  for (int shard : {0, 1}) ExpectUpdates(0, shard, 2, 100);
}

TEST_F(ReplicationTest, ABackupThatDoesNotCountYetHoldsNobodyUp) {
  Fill(100);
  SetView(1, kOnly0);
  ps_[1].reset();
  SetView(2, kCatchUp1);
  PushPullClient& client = MakeClient(0);
  for (uint64_t n = 1; n <= 3; ++n) Push(client, n, 1);
  ASSERT_TRUE(Becomes([&] { return !ps_[0]->Beat()->backup_error().empty(); }));
  EXPECT_THAT(ps_[0]->Beat()->synced(), ElementsAre());
  for (int shard : {0, 1}) ExpectUpdates(0, shard, 3, 100);
}

// The primary was stopped and replaced. It wakes with a worker's request that is not answered yet.
TEST_F(ReplicationTest, AFrozenPrimaryThatWakesChangesNothing) {
  Fill(100);
  SetView(1, kAllOn0);
  TestWorker late(1, kLife + 1, job_);
  ASSERT_TRUE(late.Connect(View(1, kAllOn0)).ok());
  auto transfers = late.Transfers(0, 1);
  ASSERT_TRUE(late.Push(0, 1, transfers).ok());
  // Only the other one hears of the new view.
  const proto::View view = View(2, kOnly1);
  ASSERT_TRUE(ps_[1]->SetView(view).ok());
  absl::Status pushed;
  std::thread waiting([&] {
    auto transfers = late.Transfers(0, 1);
    pushed = late.Push(0, 2, transfers);
    EXPECT_FALSE(transfers[0].done);
  });
  EXPECT_TRUE(Becomes([&] { return ps_[0]->service->status().updates >= 2; }))
      << ps_[0]->service->status().updates;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (const ChunkState& state : States(1, 0)) EXPECT_EQ(state.updates, 1);
  // The worker that was waiting continues with the new primary, with the same sequence number.
  TestWorker again(1, kLife + 1, job_);
  ASSERT_TRUE(again.Connect(view).ok());
  transfers = again.Transfers(0, 1);
  ASSERT_TRUE(again.Push(0, 2, transfers).ok());
  EXPECT_TRUE(transfers[0].result.applied);
  EXPECT_THAT(transfers[0].parameters, Each(98));
  // At last it hears of the view too.
  ASSERT_TRUE(ps_[0]->SetView(view).ok());
  waiting.join();
  EXPECT_FALSE(pushed.ok());
  EXPECT_FALSE(late.Pull(0).ok());
  EXPECT_THAT(ps_[0]->Beat()->serving(), ElementsAre());
  for (const ChunkState& state : States(1, 0)) EXPECT_EQ(state.updates, 2);
  // And comes back as a backup, with what it holds thrown away.
  SetView(3, kCatchUp0);
  for (int shard : {0, 1}) AwaitSynced(1, shard);
  const auto states = States(1, 0);
  SetView(4, kOnly0);
  EXPECT_EQ(States(0, 0), states);
}

// When that is answered the backup has it, without a push that waits for the handover.
TEST_F(ReplicationTest, AShardThatIsSetBackTakesItsBackupAlong) {
  Fill(10);
  SetView(1, kAllOn0);
  PushPullClient& client = MakeClient(0);
  Push(client, 1, 1);
  for (int shard : {0, 1}) ASSERT_TRUE(ps_[0]->Fill(Content(job_, shard, 50)).ok());
  ps_[0].reset();
  SetView(2, kOnly1);
  for (const ChunkState& state : States(1, 0)) EXPECT_THAT(state.parameters, Each(50));
  Push(client, 2, 1);
  for (int shard : {0, 1})
    for (const ChunkState& state : States(1, shard)) EXPECT_THAT(state.parameters, Each(49));
}

TEST_F(ReplicationTest, AProcessThatIsNoPrimaryOfTheViewIsRefused) {
  Fill(10);
  SetView(1, kBoth);
  transport::AbortSignal abort;
  ReplicationOptions options;
  options.layout = std::stoull(job_.digest(), nullptr, 16);
  options.chunks = static_cast<int>(job_.layout().chunks[0].size());
  options.abort = &abort;
  options.listener = listener_.get();
  options.in_sync = true;
  options.view = ViewNumber(1);
  options.ticket = "ticket";
  options.address = ps_[1]->address();
  options.backup = 1;
  const auto backup_error_of = [&](const ReplicationOptions& options) {
    const std::shared_ptr<ShardStore> local =
        ShardStore::Make({job_.layout().chunks[0], {SgdSpec{}}});
    for (const proto::ChunkContent& content : Content(job_, 0, 7))
      EXPECT_TRUE(local->Restore(content.chunk(), StateOf(content)).ok());
    const auto replicated = ReplicatedStore::Make(local, options);
    std::string last_error;
    for (const MonotonicTime until = In(kLong); last_error.empty() && Clock::now() < until;)
      last_error = replicated->last_error();
    EXPECT_FALSE(replicated->synced());
    replicated->Close();
    return last_error;
  };
  ReplicationOptions wrong = options;
  wrong.ticket = "guess";
  EXPECT_THAT(backup_error_of(wrong), HasSubstr("ticket"));
  wrong = options;
  ++wrong.layout;
  EXPECT_THAT(backup_error_of(wrong), HasSubstr("has other variables"));
  wrong = options;
  wrong.shard = 1;
  EXPECT_THAT(backup_error_of(wrong), HasSubstr("ps 1 is no backup of shard 1"));
  SetView(2, kBoth);
  EXPECT_THAT(backup_error_of(options), HasSubstr("left this generation"));
  SetView(3, kOnly1);
  for (const ChunkState& state : States(1, 0)) EXPECT_THAT(state.parameters, Each(10));
}

TEST(ReplicationWireTest, StateTravelsWhole) {
  ChunkState state;
  state.parameters = {1, 2, 3};
  state.slots = {{4, 5, 6, 4}, {7}};  // of rows they are shorter
  state.updates = 12;
  state.last = {{0, {77, 3}}, {5, {78, 4}}};
  const std::string bytes = EncodeState(state);
  const auto decoded = DecodeState(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, state);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(DecodeState(std::span(bytes).first(size)).ok()) << size;
  EXPECT_FALSE(DecodeState(bytes + "x").ok());
  const size_t length = bytes.find(std::string("\x03\0\0\0\0\0\0\0\0\0\x80\x3f", 12));
  ASSERT_NE(length, std::string::npos) << "of the parameters, and the first of them";
  for (const uint64_t other : {uint64_t{2}, uint64_t{4}, uint64_t{1} << 62, ~uint64_t{0}}) {
    std::string damaged = bytes;
    std::memcpy(damaged.data() + length, &other, sizeof other);
    EXPECT_THAT(std::string(Message(DecodeState(damaged).status())),
                HasSubstr("which do not fit together"))
        << other;
  }
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string noise = bytes;
    for (int i = 0; i < 4; ++i) noise[random() % noise.size()] = static_cast<char>(random());
    (void)DecodeState(noise);  // ends, and reads no more than it was given
  }
}

TEST(ReplicationWireTest, AGradientThatDoesNotFitIsRefused) {
  const std::vector<uint64_t> memory(6);  // 48 bytes
  const std::span<const char> bytes(reinterpret_cast<const char*>(memory.data()), 48);
  std::vector<float> widened;
  struct Case {
    push_pull::Compression compression;
    size_t width, bytes, elements;  // no elements: refused
  };
  for (const Case& c : {Case{push_pull::Compression::kNone, 0, 12, 3},
                        Case{push_pull::Compression::kNone, 0, 10, 0},
                        Case{push_pull::Compression::kBFloat16, 0, 6, 3},
                        Case{push_pull::Compression::kFloat16, 0, 5, 0},
                        Case{push_pull::Compression::kNone, 2, 32, 8},
                        Case{push_pull::Compression::kNone, 2, 24, 0},
                        Case{push_pull::Compression::kFloat16, 2, 24, 8},
                        Case{push_pull::Compression::kFloat16, 2, 16, 0}}) {
    const UpdateHead head = HeadOf({}, 1, c.compression);
    const auto gradient = GradientOf(head, c.width, bytes.first(c.bytes), &widened);
    EXPECT_EQ(gradient.ok(), c.elements > 0) << c.width << " " << c.bytes;
    if (gradient.ok()) {
      EXPECT_EQ(gradient->size(), c.elements);
    }
  }
}

TEST(ReplicationWireTest, AGradientMayHaveNoRows) {
  std::vector<float> widened;
  for (const push_pull::Compression compression :
       {push_pull::Compression::kNone, push_pull::Compression::kFloat16}) {
    const auto gradient = GradientOf(HeadOf({}, 1, compression), 2, {}, &widened);
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    EXPECT_TRUE(gradient->empty());
  }
}

TEST(ReplicationWireTest, DamagedFramesAreReported) {
  ReplicaFrame frame;
  frame.chunk = 3;
  frame.taken = 1ull << 40;
  frame.more = true;
  const transport::FrameHeader header = EncodeReplica(ReplicaKind::kAck, frame, 5);
  const auto decoded = DecodeReplica(header);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->first, ReplicaKind::kAck);
  EXPECT_EQ(decoded->second.chunk, 3u);
  EXPECT_EQ(decoded->second.taken, 1ull << 40);
  EXPECT_TRUE(decoded->second.more);
  for (size_t at = 0; at < sizeof header; ++at) {
    transport::FrameHeader damaged = header;
    reinterpret_cast<unsigned char*>(&damaged)[at] ^= 1;
    EXPECT_FALSE(DecodeReplica(damaged).ok()) << at;
  }
}

}  // namespace
}  // namespace muster::ps
