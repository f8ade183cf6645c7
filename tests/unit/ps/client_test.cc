#include "common/push_pull/client.h"

#include <dirent.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <set>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/push_pull/wire.h"
#include "ps/server_connection.h"
#include "tests/unit/ps/forwarding_store.h"
#include "tests/unit/transport/test_authority.h"

namespace muster::push_pull {
namespace {

using ps::ForwardingStore;
using ::testing::HasSubstr;

constexpr const char* kTicket = "ticket";
constexpr const char* kHost = "this host";
constexpr uint64_t kLife = 77;
const std::string kDigest = "0123456789abcdef";

// Passes everything on. While it is frozen, pushes wait at the point where they are applied, as in
// a process that was stopped.
class FreezableStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  void Freeze(bool frozen) {
    absl::MutexLock lock(&mutex_);
    frozen_ = frozen;
    changed_.SignalAll();
  }
  void AwaitCaught() {
    absl::MutexLock lock(&mutex_);
    while (!caught_) changed_.Wait(&mutex_);
  }
  absl::StatusOr<Pushed> Apply(int chunk, const ChunkPush& push, std::span<float> out) override {
    absl::StatusOr<Pushed> pushed = ForwardingStore::Apply(chunk, push, {});
    absl::MutexLock lock(&mutex_);
    caught_ = frozen_;
    changed_.SignalAll();
    while (frozen_) changed_.Wait(&mutex_);
    if (!out.empty()) (void)Pull(chunk, out);
    return pushed;
  }

 private:
  absl::Mutex mutex_;
  absl::CondVar changed_;
  bool frozen_ = false, caught_ = false;
};

// With TLS where it has a task to be.
std::unique_ptr<transport::DataListener> Listen(const std::string& task) {
  static muster::testing::TestAuthority authority;
  return *transport::DataListener::Create(
      {.bind_address = "127.0.0.1", .security = task.empty() ? nullptr : authority.Issue(task)});
}

// A ps task that is the primary of one shard. It accepts every connection, and serves each on a
// thread.
class TestServer {
 public:
  TestServer(const Layout& layout, int shard, bool tls = false) : layout_(layout), shard_(shard) {
    listener_ = Listen(tls ? fmt::format("ps:{}", shard) : "");
    Reset();
  }
  ~TestServer() { CloseView(); }

  // Sets the initial state: parameters are 10, no updates.
  void Reset() {
    store = std::make_unique<FreezableStore>(
        ps::ShardStore::Make({layout_.chunks[shard_], {SgdSpec{}, SgdSpec{}}}));
    for (size_t c = 0; c < layout_.chunks[shard_].size(); ++c)
      EXPECT_TRUE(
          store->Fill(c, std::vector<float>(layout_.chunks[shard_][c].elements(), 10)).ok());
    store->Admit(0, kLife);
  }
  void OpenView(uint64_t view) {
    CloseView();
    options_.layout = LayoutNumber(kDigest);
    options_.chunks = layout_.chunks[shard_];
    abort_ = std::make_unique<transport::AbortSignal>();
    admission_ = listener_->Admit(view, transport::kAnyone, kTicket);
    acceptor_ = std::thread([this] { Accept(); });
  }
  void CloseView() {
    if (!acceptor_.joinable()) return;
    abort_->Set();
    acceptor_.join();
    admission_.reset();
    for (std::thread& thread : serving_) thread.join();
    serving_.clear();
    connections_.clear();
  }
  // Cuts all connections. Later connections are served.
  void Cut() {
    absl::MutexLock lock(&mutex_);
    for (auto& connection : connections_) connection->Shutdown();
  }
  int connections() const {
    absl::MutexLock lock(&mutex_);
    return static_cast<int>(connections_.size());
  }
  ClientView::Primary primary() const { return {shard_, listener_->address(), kHost}; }
  int64_t updates(int chunk) const { return store->Copy(chunk)->updates; }

  std::unique_ptr<FreezableStore> store;

 private:
  void Accept() {
    for (uint64_t seen = 0; !abort_->is_set();
         listener_->WaitForChange(&seen, std::chrono::milliseconds(5))) {
      while (auto connection = admission_->TakeAny()) {
        absl::MutexLock lock(&mutex_);
        transport::DataConnection* const taken =
            connections_.emplace_back(std::move(connection)).get();
        serving_.emplace_back(
            [this, taken] { (void)ps::Serve(*taken, *store, options_, *abort_); });
      }
    }
  }

  const Layout& layout_;
  const int shard_;
  ps::ServeOptions options_;
  std::unique_ptr<transport::DataListener> listener_;
  std::unique_ptr<transport::Admission> admission_;
  std::unique_ptr<transport::AbortSignal> abort_;
  std::thread acceptor_;
  std::list<std::thread> serving_;
  mutable absl::Mutex mutex_;
  std::list<std::unique_ptr<transport::DataConnection>> connections_;
};

// The chief's word on views.
class Views {
 public:
  absl::StatusOr<ClientView> Next(uint64_t newer_than) {
    absl::MutexLock lock(&mutex_);
    ++asked_;
    changed_.SignalAll();
    const absl::Time until = absl::Now() + limit_;
    while (!ended_ && view_.number <= newer_than)
      if (changed_.WaitWithTimeout(&mutex_, until - absl::Now()) && absl::Now() > until)
        return DeadlinePassed("the chief sent no view");
    if (ended_) return Superseded("the job has ended");
    return view_;
  }
  void Set(ClientView view) {
    absl::MutexLock lock(&mutex_);
    view_ = std::move(view);
    changed_.SignalAll();
  }
  void End() {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    changed_.SignalAll();
  }
  void Limit(absl::Duration limit) {
    absl::MutexLock lock(&mutex_);
    limit_ = limit;
  }
  void AwaitAsked(int times) {
    absl::MutexLock lock(&mutex_);
    const absl::Time until = absl::Now() + absl::Seconds(10);
    while (asked_ < times && absl::Now() < until)
      changed_.WaitWithTimeout(&mutex_, until - absl::Now());
    EXPECT_GE(asked_, times);
  }

 private:
  absl::Mutex mutex_;
  absl::CondVar changed_;
  ClientView view_;
  bool ended_ = false;
  int asked_ = 0;
  absl::Duration limit_ = absl::Seconds(20);
};

struct Path {
  const char* name;
  bool shared;
  int connections = 1;
  bool tls = false;
};

// Two shards, of several chunks each, and worker 0.
class ClientTest : public ::testing::TestWithParam<Path> {
 protected:
  ClientTest() {
    // Two optimizers: chunks are of one each.
    layout_ = MakeLayout({{"a", {1000, 100}, 0}, {"b", {30000}, 1}, {"c", {7}, 1}},
                         {.servers = 2, .chunk_bytes = 64 << 10});
    listener_ = Listen(GetParam().tls ? "worker:0" : "");
    for (int shard = 0; shard < 2; ++shard) {
      servers_.push_back(std::make_unique<TestServer>(layout_, shard, GetParam().tls));
      parameters_.emplace_back(layout_.elements[shard], -1.0f);
    }
    SetView(1);
  }
  ~ClientTest() override {
    views_.End();
    client_.reset();
  }
  bool shared() const { return GetParam().shared; }

  // All servers and the client go over to it.
  void SetView(uint64_t number) {
    for (auto& server : servers_) server->OpenView(number);
    Announce(number);
  }
  // `restored`: what shard 0 had in views up to this one is gone.
  void Announce(uint64_t number, uint64_t restored = 0) {
    ClientView view{number, kTicket, {}};
    for (auto& server : servers_) view.shards.push_back(server->primary());
    view.shards[0].restored = restored;
    views_.Set(view);
  }
  // Shard 0 restarts from the initial state.
  void SetBack(uint64_t number) {
    for (auto& server : servers_) server->CloseView();
    servers_[0]->Reset();
    for (auto& server : servers_) server->OpenView(number);
    Announce(number, number - 1);
  }
  void AwaitUpdates(int shard, int chunk, int64_t updates) {
    const MonotonicTime deadline = Clock::now() + std::chrono::minutes(1);
    while (servers_[shard]->updates(chunk) < updates && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(servers_[shard]->updates(chunk), updates);
  }
  // Until no more than these launched chunks are without an answer.
  void AwaitUnanswered(int64_t chunks) {
    const MonotonicTime deadline = Clock::now() + std::chrono::minutes(1);
    while (*in_flight_ > chunks && Clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(*in_flight_, chunks);
  }
  void Make(ParameterServerOptions options = {}) {
    ClientOptions o;
    o.incarnation = kLife;
    o.layout = layout_;
    o.digest = kDigest;
    o.options = options;
    o.options.connections = GetParam().connections;
    o.listener = listener_.get();
    if (shared()) o.host_id = kHost;
    o.in_flight = in_flight_;
    o.next_view = [this](uint64_t newer_than) { return views_.Next(newer_than); };
    for (auto& p : parameters_)
      o.parameters.push_back({std::span(p).first(3), std::span(p).subspan(3)});
    client_ = *PushPullClient::Make(std::move(o));
    for (int shard = 0; shard < 2; ++shard)
      std::ranges::fill(client_->gradients(shard), static_cast<float>(shard + 1));
  }
  void Launch(int shard) {
    for (size_t c = 0; c < layout_.chunks[shard].size(); ++c) client_->Launch(shard, c);
  }
  absl::StatusOr<PushPullClient::Outcome> PushAll(uint64_t sequence) {
    client_->Begin(sequence, 0, {0.5, 0.25});
    for (int shard = 0; shard < 2; ++shard) Launch(shard);
    return client_->Finish();
  }
  float Expected(int shard, const Chunk& chunk, int pushes) const {
    return 10 - pushes * (chunk.optimizer == 0 ? 0.5f : 0.25f) * (shard + 1);
  }
  void ExpectParameters(int pushes) {
    for (int shard = 0; shard < 2; ++shard)
      for (const Chunk& chunk : layout_.chunks[shard])
        EXPECT_EQ(
            std::ranges::count(std::span(parameters_[shard]).subspan(chunk.begin, chunk.elements()),
                               Expected(shard, chunk, pushes)),
            chunk.elements());
  }
  void ExpectUpdates(int64_t updates) {
    for (auto& server : servers_)
      for (size_t c = 0; c < layout_.chunks[&server - servers_.data()].size(); ++c)
        EXPECT_EQ(server->updates(c), updates);
  }

  Layout layout_;
  Views views_;
  std::unique_ptr<transport::DataListener> listener_;
  std::vector<std::unique_ptr<TestServer>> servers_;
  std::vector<std::vector<float>> parameters_;
  const std::shared_ptr<std::atomic<int64_t>> in_flight_ =
      std::make_shared<std::atomic<int64_t>>(0);
  std::unique_ptr<PushPullClient> client_;
};

INSTANTIATE_TEST_SUITE_P(Paths, ClientTest,
                         ::testing::Values(Path{"Tcp", false}, Path{"SharedMemory", true},
                                           Path{"ThreeConnections", false, 3},
                                           Path{"Tls", false, 1, true},
                                           Path{"TlsThreeConnections", false, 3, true},
                                           Path{"TlsSharedMemory", true, 1, true},
                                           Path{"SharedMemoryTwice", true, 2}),
                         [](const auto& info) { return info.param.name; });

TEST_P(ClientTest, PushesAndPullsAllShards) {
  Make();
  ASSERT_TRUE(client_->Pull().ok());
  ExpectParameters(0);
  for (int push = 1; push <= 3; ++push) {
    const auto outcome = PushAll(push);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->resumed, 0);
    EXPECT_EQ(outcome->staleness_max, 0);
    EXPECT_EQ(outcome->bytes, (layout_.elements[0] + layout_.elements[1]) * 8);
    ExpectParameters(push);
  }
  ExpectUpdates(3);
  for (size_t shard = 0; shard < 2; ++shard)
    EXPECT_EQ(servers_[shard]->connections(),
              std::min<int>(GetParam().connections, layout_.chunks[shard].size()));
}

TEST_P(ClientTest, StalenessIsWhatOthersDidSinceThePull) {
  Make();
  ASSERT_TRUE(client_->Pull().ok());
  servers_[0]->store->Admit(5, 1);
  const std::vector<float> other(layout_.chunks[0][0].elements(), 0);
  for (uint64_t n = 1; n <= 3; ++n)
    ASSERT_TRUE(servers_[0]->store->Apply(0, {{5, 1, n}, 0, 1, other}, {}).ok());
  const auto outcome = PushAll(1);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->staleness_max, 3);
  const size_t chunks = layout_.chunks[0].size() + layout_.chunks[1].size();
  EXPECT_DOUBLE_EQ(outcome->staleness_mean, 3.0 / chunks);
  EXPECT_EQ(PushAll(2)->staleness_max, 0);
}

TEST_P(ClientTest, TellsWhichChunksWereRefused) {
  Make();
  ASSERT_TRUE(client_->Pull().ok());
  const auto last = static_cast<int>(layout_.chunks[0].size()) - 1;
  ASSERT_GT(last, 0);
  const auto spoil = [&](int shard, int chunk) {
    client_->gradients(shard)[layout_.chunks[shard][chunk].begin] = HUGE_VALF;
  };
  spoil(0, last);
  auto outcome = PushAll(1);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->refused, (std::set<std::pair<int, int>>{{0, last}}));
  EXPECT_EQ(outcome->views, (std::vector<uint64_t>{1, 1}));
  // Nothing of the push is in a shard that has refused all of it.
  for (int c = 0; c < last; ++c) spoil(0, c);
  outcome = PushAll(2);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->refused.size(), layout_.chunks[0].size());
  EXPECT_EQ(outcome->views, (std::vector<uint64_t>{0, 1}));
  std::ranges::fill(client_->gradients(0), 1.f);
  outcome = PushAll(3);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->refused.empty());
  for (int c = 0; c <= last; ++c) EXPECT_EQ(servers_[0]->updates(c), c == last ? 1 : 2);
  EXPECT_EQ(servers_[1]->updates(0), 3);
}

// The client sends the shard's chunks of the current push again, but not those of other pushes.
TEST_P(ClientTest, AShardThatWentBackHasAPushAsAWholeOrNotAtAll) {
  Make();
  ASSERT_TRUE(client_->Pull().ok());
  ASSERT_TRUE(PushAll(1).ok());
  client_->Begin(2, 0, {0.5, 0.25});
  Launch(0);
  const auto chunks = static_cast<int>(layout_.chunks[0].size());
  for (int c = 0; c < chunks; ++c) AwaitUpdates(0, c, 2);
  SetBack(2);
  Launch(1);
  auto outcome = client_->Finish();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_GE(outcome->resumed, 1);
  EXPECT_EQ(outcome->views, (std::vector<uint64_t>{2, 2}));
  for (int c = 0; c < chunks; ++c) EXPECT_EQ(servers_[0]->updates(c), 1);
  AwaitUpdates(1, 0, 2);

  // A part of the shard's chunks, whose answers are here or on their way.
  client_->Begin(3, 0, {0.5, 0.25});
  client_->Launch(0, 0);
  AwaitUpdates(0, 0, 2);
  SetBack(3);
  for (int c = 1; c < chunks; ++c) client_->Launch(0, c);
  outcome = client_->Finish();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->views, (std::vector<uint64_t>{3, 0}));
  for (int c = 0; c < chunks; ++c) EXPECT_EQ(servers_[0]->updates(c), 1);

  // A push that was complete is not sent again.
  SetBack(4);
  outcome = PushAll(4);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  for (int c = 0; c < chunks; ++c) EXPECT_EQ(servers_[0]->updates(c), 1);
}

TEST_P(ClientTest, APushThatIsCutOffCountsOnce) {
  Make();
  ASSERT_TRUE(client_->Pull().ok());
  int resumed = 0;
  for (int push = 1; push <= 30; ++push) {
    client_->Begin(static_cast<uint64_t>(push), 0, {0.5, 0.25});
    for (int shard = 0; shard < 2; ++shard) Launch(shard);
    if (push % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20 * push));
    servers_[push % 2]->Cut();
    const auto outcome = client_->Finish();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    resumed += outcome->resumed;
    ExpectParameters(push);
  }
  ExpectUpdates(30);
  EXPECT_GT(resumed, 0);
}

TEST_P(ClientTest, ANewViewIsFollowedInTheMiddleOfAPush) {
  Make();
  ASSERT_TRUE(PushAll(1).ok());
  client_->Begin(2, 0, {0.5, 0.25});
  Launch(0);
  AwaitUnanswered(0);
  // Shard 1 moves to another task with the state that its backup had; the old one still
  // listens, but serves a past view.
  servers_[1]->CloseView();
  Launch(1);
  views_.AwaitAsked(2);
  auto moved = std::make_unique<TestServer>(layout_, 1, GetParam().tls);
  for (size_t c = 0; c < layout_.chunks[1].size(); ++c)
    ASSERT_TRUE(moved->store->Restore(c, *servers_[1]->store->Copy(c), {}).ok());
  std::swap(servers_[1], moved);
  SetView(2);
  const auto outcome = client_->Finish();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->views, (std::vector<uint64_t>{1, 2}));
  ExpectParameters(2);
  ExpectUpdates(2);
}

TEST_P(ClientTest, AServerThatHangsIsLeftWithTheNextView) {
  Make();
  ASSERT_TRUE(PushAll(1).ok());
  // Nobody takes what comes to this listener.
  const auto deaf = *transport::DataListener::Create({.bind_address = "127.0.0.1"});
  ClientView view{2, kTicket, {servers_[0]->primary(), {1, deaf->address(), kHost}}};
  servers_[0]->OpenView(2);
  servers_[1]->CloseView();
  views_.Set(view);
  client_->Begin(2, 0, {0.5, 0.25});
  for (int shard = 0; shard < 2; ++shard) Launch(shard);
  views_.AwaitAsked(3);  // newer than 2
  SetView(3);
  ASSERT_TRUE(client_->Finish().ok());
  ExpectParameters(2);
  ExpectUpdates(2);
}

TEST_P(ClientTest, AServerThatWakesLateChangesNothing) {
  Make();
  ASSERT_TRUE(PushAll(1).ok());
  TestServer& frozen = *servers_[1];
  auto next = std::make_unique<TestServer>(layout_, 1, GetParam().tls);
  for (size_t c = 0; c < layout_.chunks[1].size(); ++c)
    ASSERT_TRUE(next->store->Restore(c, *frozen.store->Copy(c), {}).ok());
  frozen.store->Freeze(true);
  client_->Begin(2, 0, {0.5, 0.25});
  for (int shard = 0; shard < 2; ++shard) Launch(shard);
  frozen.store->AwaitCaught();
  std::swap(servers_[1], next);
  SetView(2);
  ASSERT_TRUE(client_->Finish().ok());
  ExpectParameters(2);
  // It writes what it has into the memory that it was given, and answers on its connection.
  std::ranges::fill(client_->gradients(1), 1000.0f);
  std::ranges::fill(parameters_[1], 77.0f);
  frozen.store->Freeze(false);
  frozen.CloseView();
  EXPECT_EQ(std::ranges::count(parameters_[1], 77.0f), std::ssize(parameters_[1]));
  ASSERT_TRUE(client_->Pull().ok());
  ExpectParameters(2);
  ExpectUpdates(2);
}

TEST_P(ClientTest, WithoutATicketNobodyIsServed) {
  Make();
  ClientView view{2, "a guess", {servers_[0]->primary(), servers_[1]->primary()}};
  for (auto& server : servers_) server->OpenView(2);
  views_.Set(view);
  client_->Begin(1, 0, {0.5, 0.25});
  for (int shard = 0; shard < 2; ++shard) Launch(shard);
  views_.AwaitAsked(2);
  for (auto& server : servers_) EXPECT_EQ(server->connections(), 0);
  ExpectUpdates(0);
  SetView(3);
  ASSERT_TRUE(client_->Finish().ok());
  ExpectParameters(1);
}

TEST_P(ClientTest, WithoutAnotherViewTheErrorNamesTheReason) {
  Make();
  ASSERT_TRUE(PushAll(1).ok());
  for (auto& server : servers_) server->CloseView();
  views_.Limit(absl::Milliseconds(50));
  const absl::Status status = PushAll(2).status();
  EXPECT_THAT(std::string(Message(status)),
              ::testing::AllOf(HasSubstr("the chief sent no view"), HasSubstr("(shard ")));
  EXPECT_EQ(PushAll(3).status(), status) << "the first error is kept";
}

TEST_P(ClientTest, OtherVariablesEndItAtOnce) {
  Make();
  ClientOptions o;
  o.incarnation = kLife;
  o.layout = layout_;
  o.digest = "another";
  o.listener = listener_.get();
  o.next_view = [this](uint64_t newer_than) { return views_.Next(newer_than); };
  for (auto& p : parameters_) o.parameters.push_back({p});
  const auto client = *PushPullClient::Make(o);
  const absl::Status status = client->Pull();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("has other variables"));
  views_.End();
  o.parameters.pop_back();
  EXPECT_TRUE(absl::IsInvalidArgument(PushPullClient::Make(o).status()));
}

TEST_P(ClientTest, CountsTheChunksWithoutAnAnswer) {
  Make();
  ASSERT_TRUE(client_->Pull().ok());
  EXPECT_EQ(*in_flight_, 0);
  FreezableStore& frozen = *servers_[1]->store;
  frozen.Freeze(true);
  client_->Begin(1, 0, {0.5, 0.25});
  for (int shard = 0; shard < 2; ++shard) Launch(shard);
  frozen.AwaitCaught();
  AwaitUnanswered(std::ssize(layout_.chunks[1]));  // Shard 0 answers meanwhile.
  frozen.Freeze(false);
  ASSERT_TRUE(client_->Finish().ok());
  EXPECT_EQ(*in_flight_, 0);
}

TEST_P(ClientTest, AbortWakesAllWaiters) {
  Make();
  for (auto& server : servers_) server->CloseView();
  std::thread abort([this] {
    views_.AwaitAsked(1);
    client_->Abort(Superseded("enough"));
  });
  const absl::Status status = PushAll(1).status();
  abort.join();
  EXPECT_EQ(status, Superseded("enough"));
  EXPECT_EQ(client_->Pull(), Superseded("enough"));
}

TEST_P(ClientTest, NothingIsLeftInSharedMemory) {
  const auto names = [] {
    std::set<std::string> found;
    DIR* folder = opendir("/dev/shm");
    while (const dirent* entry = readdir(folder))
      if (std::string_view(entry->d_name).starts_with("muster-")) found.insert(entry->d_name);
    closedir(folder);
    return found;
  };
  const auto before = names();
  Make();
  ASSERT_TRUE(PushAll(1).ok());
  // Segments of other tests, which run at the same time, disappear.
  const auto after = names();
  const auto left = [&] {
    const auto now = names();
    return std::any_of(after.begin(), after.end(), [&](const std::string& name) {
      return !before.contains(name) && now.contains(name);
    });
  };
  const MonotonicTime deadline = Clock::now() + std::chrono::minutes(1);
  while (left() && Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(left());
}

}  // namespace
}  // namespace muster::push_pull
