// Embedding tables on parameter servers: rows in chunks of a store, over connections, in copies and
// on a backup.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>
#include <list>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/shards/row_filler.h"
#include "common/push_pull/client.h"
#include "common/push_pull/rows/key_index.h"
#include "common/push_pull/rows/row_spread.h"
#include "common/push_pull/wire.h"
#include "ps/replication/replication_wire.h"
#include "ps/server_connection.h"
#include "tests/unit/checkpoint/memory_file_system.h"
#include "tests/unit/ps/ps_cluster.h"

namespace muster::ps {
namespace {

using push_pull::Chunk;
using push_pull::ClientView;
using push_pull::EmbeddingTable;
using push_pull::Eviction;
using push_pull::kRowChunks;
using push_pull::Layout;
using push_pull::PackRows;
using push_pull::PlaceOfRow;
using push_pull::PushPullClient;
using push_pull::ReplyPart;
using push_pull::RequestPart;
using push_pull::RowFetch;
using push_pull::RowPlace;
using push_pull::RowPull;
using push_pull::VariableSpec;
using ::testing::HasSubstr;

constexpr int64_t kWidth = 3;

VariableSpec Table(const std::string& name) {
  VariableSpec spec{name, {0, kWidth}, 0};
  spec.table = push_pull::TableSpec{
      kWidth, static_cast<int>(push_pull::Initializer::Kind::kUniform), 0.05, 9};
  return spec;
}
EmbeddingTable::Options OptionsOf(const RuleSpec& rule) {
  return {.width = kWidth, .initializer = {}, .seed = 9, .rule = rule, .shards = 1};
}

TEST(RowLayout, EachServerHasChunksOfEachTable) {
  const std::vector<VariableSpec> variables = {{"w", {40}, 0}, Table("users"), Table("items")};
  const Layout layout = push_pull::MakeLayout(variables, {.servers = 3});
  for (const auto& chunks : layout.chunks) {
    EXPECT_EQ(std::ranges::count(chunks, 1, &Chunk::table), kRowChunks);
    EXPECT_EQ(std::ranges::count(chunks, 2, &Chunk::table), kRowChunks);
  }
  std::map<std::pair<int, int>, int> counts;
  for (uint64_t key = 0; key < 48000; ++key) {
    const RowPlace place = PlaceOfRow(key, 3);
    ++counts[{place.server, place.chunk}];
  }
  ASSERT_EQ(counts.size(), 3u * kRowChunks);
  for (const auto& [place, count] : counts) EXPECT_NEAR(count, 1000, 200);

  std::vector<VariableSpec> others = variables;
  others[1].table->seed = 10;
  EXPECT_EQ(push_pull::FirstDifference(variables, others), "the rows of table users");
  others = variables;
  others[1].table->max_rows = 5;
  EXPECT_EQ(push_pull::FirstDifference(variables, others),
            "max_rows of table users: 0 here, 5 there");
  EXPECT_NE(push_pull::DigestOf(variables, {}), push_pull::DigestOf(others, {}));
}

TEST(RowLayout, ABatchIsSpreadAndPutTogether) {
  std::vector<uint64_t> keys;
  std::vector<float> rows;
  for (uint64_t i = 0; i < 1000; ++i) {
    keys.push_back(i * i * 31);
    for (int64_t j = 0; j < kWidth; ++j) rows.push_back(static_cast<float>(i * kWidth + j));
  }
  push_pull::RowSpread spread;
  push_pull::SpreadRows(std::vector<uint64_t>{1, 2, 3}, 1, &spread);
  push_pull::SpreadRows(keys, 3, &spread);
  ASSERT_EQ(spread.chunks(), 3u * kRowChunks);
  std::vector<float> by_chunk, back(rows.size());
  for (size_t c = 0; c < spread.chunks(); ++c) {
    std::vector<float> packed(spread.count(c) * (2 + kWidth));
    EXPECT_EQ(push_pull::PackChunk(spread, c, kWidth, rows, packed.data()),
              packed.data() + packed.size());
    const absl::StatusOr<push_pull::PackedRows> chunk = push_pull::UnpackRows(packed, kWidth);
    ASSERT_TRUE(chunk.ok());
    ASSERT_EQ(chunk->keys.size(), spread.count(c));
    for (size_t i = 0; i < chunk->keys.size(); ++i) {
      const RowPlace place = PlaceOfRow(chunk->keys[i], 3);
      EXPECT_EQ(static_cast<size_t>(place.server * kRowChunks + place.chunk), c);
      EXPECT_EQ(chunk->keys[i], spread.keys[spread.begin[c] + i]);
    }
  }
  for (const uint32_t place : spread.order)
    by_chunk.insert(by_chunk.end(), rows.begin() + place * kWidth,
                    rows.begin() + (place + 1) * kWidth);
  push_pull::UnspreadRows(spread, kWidth, by_chunk, back);
  EXPECT_EQ(back, rows);
}

class RowStore : public ::testing::Test {
 protected:
  static constexpr uint64_t kWorker = 5;
  RowStore() { store_ = Make(); }
  static std::unique_ptr<ShardStore> Make() {
    auto store = ShardStore::Make({{{0, 0, 0, 0, 1}}, {AdamSpec{}}, {{1, OptionsOf(AdamSpec{})}}});
    store->Admit(0, kLife);
    store->Admit(1, kLife);
    return store;
  }
  absl::StatusOr<push_pull::Pushed> Push(ShardStore& store, int worker, uint64_t sequence,
                                         const std::vector<uint64_t>& keys, float gradient) {
    const std::vector<float> packed =
        PackRows(keys, std::vector<float>(keys.size() * kWidth, gradient));
    push_pull::ChunkPush push;
    push.key = {worker, kLife, sequence};
    push.learning_rate = 0.1;
    push.gradient = packed;
    return store.Apply(0, push, {});
  }
  static std::vector<float> Rows(const ShardStore& store, const std::vector<uint64_t>& keys) {
    std::vector<float> rows(keys.size() * kWidth);
    EXPECT_TRUE(store.PullRows(0, keys, rows).ok());
    return rows;
  }
  std::unique_ptr<ShardStore> store_;
};

TEST_F(RowStore, AppliesAPushOnceAsATableWould) {
  std::vector<float> none(kWidth);
  EXPECT_FALSE(store_->PullRows(0, std::vector<uint64_t>{1}, none).ok()) << "it holds nothing";
  ASSERT_TRUE(store_->Fill(0, {}).ok());
  const auto table = EmbeddingTable::Make(OptionsOf(AdamSpec{}));
  const std::vector<uint64_t> keys = {4, ~0ull, 6};
  std::vector<float> expected(9);
  ASSERT_TRUE(table->Peek(keys, expected).ok());
  EXPECT_EQ(Rows(*store_, keys), expected);
  for (int again = 0; again < 2; ++again) {
    const auto pushed = Push(*store_, 0, 1, keys, 0.5);
    ASSERT_TRUE(pushed.ok()) << pushed.status();
    EXPECT_EQ(pushed->applied, again == 0);
    EXPECT_EQ(pushed->updates, 1);
  }
  ASSERT_TRUE(table->Push(keys, std::vector<float>(9, 0.5f), 0.1).ok());
  ASSERT_TRUE(table->Peek(keys, expected).ok());
  EXPECT_EQ(Rows(*store_, keys), expected);
  EXPECT_EQ(Push(*store_, 1, 1, {4}, 1)->staleness, 1);
  EXPECT_TRUE(Push(*store_, 1, 2, {}, 1).ok()) << "of no rows";
}

// All that a worker sends is here at once, and the end of the stream after it.
class Recorded : public transport::ByteStream {
 public:
  struct Calls {
    size_t reads = 0, writes = 0;
    std::string out;
  };
  Recorded(std::string in, Calls* calls) : in_(std::move(in)), calls_(calls) {}
  absl::StatusOr<size_t> Read(std::span<const iovec> into) override {
    ++calls_->reads;
    if (at_ == in_.size()) return PeerLost("the end");
    size_t moved = 0;
    for (const iovec& piece : into) {
      const size_t n = std::min(piece.iov_len, in_.size() - at_);
      std::memcpy(piece.iov_base, in_.data() + at_, n);
      at_ += n;
      moved += n;
    }
    return moved;
  }
  absl::StatusOr<size_t> Write(std::span<const iovec> from) override {
    ++calls_->writes;
    size_t moved = 0;
    for (const iovec& piece : from) {
      calls_->out.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
      moved += piece.iov_len;
    }
    return moved;
  }
  short PollEvents(bool, bool) const override { return 0; }
  int fd() const override { return -1; }
  void Shutdown() override {}

 private:
  const std::string in_;
  Calls* const calls_;
  size_t at_ = 0;
};

template <typename T>
void Append(std::string* bytes, std::span<const T> values) {
  bytes->append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

// The requests have odd sizes, so that frames cross the boundaries of the read buffer.
TEST_F(RowStore, ManySmallRequestsCostFewSystemCalls) {
  const auto expected = Make();
  ASSERT_TRUE(store_->Fill(0, {}).ok() && expected->Fill(0, {}).ok());
  std::string in, out;
  const auto frame = [](std::string* to, const transport::FrameHeader& header) {
    Append(to, std::span(&header, 1));
  };
  frame(&in, push_pull::EncodeOpen({push_pull::kWireVersion, 0, kLife, 1, 9, 2}, 0));
  std::string none;
  frame(&out, push_pull::EncodeWelcome({}, &none));
  for (uint64_t i = 1; i <= 3000; ++i) {
    std::vector<uint64_t> keys;
    for (uint64_t k = 0; k < i % 4; ++k) keys.push_back(i * 7 + k);
    const bool push = i % 3 == 0;
    push_pull::Request request;
    request.operation = push ? push_pull::Operation::kPushRows : push_pull::Operation::kPullRows;
    request.sequence = push ? i : 0;
    RequestPart part;
    part.learning_rate = push ? 0.1 : 0;
    ReplyPart reply;
    if (push) {
      const std::vector<float> packed =
          PackRows(keys, std::vector<float>(keys.size() * kWidth, 0.5f));
      part.count = static_cast<uint32_t>(packed.size());
      frame(&in, push_pull::EncodeRequest(request, {&part, 1}, packed.size() * sizeof(float)));
      Append(&in, std::span<const RequestPart>(&part, 1));
      Append(&in, std::span<const float>(packed));
      const auto pushed = Push(*expected, 0, i, keys, 0.5f);
      ASSERT_TRUE(pushed.ok()) << pushed.status();
      reply.applied = pushed->applied;
      reply.updates = pushed->updates;
      reply.staleness = pushed->staleness;
      frame(&out, push_pull::EncodeReply({}, {&reply, 1}, 0));
      Append(&out, std::span<const ReplyPart>(&reply, 1));
      continue;
    }
    part.count = static_cast<uint32_t>(keys.size());
    frame(&in, push_pull::EncodeRequest(request, {&part, 1}, keys.size() * sizeof(uint64_t)));
    Append(&in, std::span<const RequestPart>(&part, 1));
    Append(&in, std::span<const uint64_t>(keys));
    std::vector<float> rows(keys.size() * kWidth);
    reply.updates = *expected->PullRows(0, keys, rows);
    frame(&out, push_pull::EncodeReply({}, {&reply, 1}, rows.size() * sizeof(float)));
    Append(&out, std::span<const ReplyPart>(&reply, 1));
    Append(&out, std::span<const float>(rows));
  }
  ServeOptions options{.layout = 1, .chunks = {{0, 0, 0, 0, 1}}, .widths = {{1, kWidth}}};
  Recorded::Calls calls;
  transport::ConnectionInfo info;
  info.generation = 9;
  info.to = 2;
  transport::DataConnection connection(std::make_unique<Recorded>(in, &calls), info);
  const absl::Status served = Serve(connection, *store_, options, transport::AbortSignal());
  EXPECT_TRUE(served.ok()) << served;
  EXPECT_EQ(calls.out.size(), out.size());
  EXPECT_TRUE(calls.out == out) << "each answer is the one that it would be alone, in order";
  EXPECT_LT(calls.reads, 30u);
  EXPECT_LT(calls.writes, 30u);
}

TEST_F(RowStore, ACopyGoesOnAsTheOriginal) {
  ASSERT_TRUE(store_->Fill(0, {}).ok());
  for (uint64_t n = 1; n <= 4; ++n)
    ASSERT_TRUE(Push(*store_, 0, n, {n, n + 1, 7}, static_cast<float>(n)).ok());
  const absl::StatusOr<ChunkState> state = store_->Copy(0);
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->updates, 4);
  EXPECT_EQ(state->parameters.size(), 6u * (2 + kWidth));
  const auto other = Make();
  ASSERT_TRUE(other->Restore(0, *state).ok());
  for (ShardStore* store : {store_.get(), other.get()}) {
    EXPECT_FALSE(Push(*store, 0, 4, {1}, 1)->applied) << "the copy knows what it has";
    EXPECT_TRUE(Push(*store, 0, 5, {1, 100}, 1)->applied);
  }
  EXPECT_EQ(Rows(*store_, {1, 2, 7, 100, 5}), Rows(*other, {1, 2, 7, 100, 5}));
}

TEST_F(RowStore, RefusesRowsThatAreNotFinite) {
  ASSERT_TRUE(store_->Fill(0, {}).ok());
  const std::vector<uint64_t> keys = {4, ~0ull,
                                      0x7f8000007f800000};  // any bits, which are no numbers
  ASSERT_TRUE(Push(*store_, 0, 1, keys, 0.5)->applied);
  const std::vector<float> before = Rows(*store_, keys);
  for (const float odd : {HUGE_VALF, std::nanf("")}) {
    const auto pushed = Push(*store_, 0, 2, keys, odd);
    ASSERT_TRUE(pushed.ok()) << pushed.status();
    EXPECT_TRUE(pushed->refused);
    EXPECT_FALSE(pushed->applied);
    EXPECT_EQ(Rows(*store_, keys), before);
    EXPECT_EQ(store_->chunk_version(0).updates, 1);
  }
  EXPECT_TRUE(Push(*store_, 0, 2, keys, 0.5)->applied);
}

// A copy of a chunk in the middle, as a backup gets it, and the same pushes then.
TEST_F(RowStore, ABackupHoldsTheSameRowsAfterEvictions) {
  for (const Eviction eviction :
       {Eviction::kOldest, Eviction::kLeastRecent, Eviction::kLeastFrequent}) {
    EmbeddingTable::Options options = OptionsOf(RowwiseAdagradSpec{});
    options.type = push_pull::RowType::kBFloat16;
    options.limits = {.max_rows = 50, .eviction = eviction, .admit_after = 2};
    const auto make = [&] {
      auto store = ShardStore::Make({{{0, 0, 0, 0, 1}}, {RowwiseAdagradSpec{}}, {{1, options}}});
      store->Admit(0, kLife);
      return store;
    };
    const auto primary = make(), backup = make();
    ASSERT_TRUE(primary->Fill(0, {}).ok());
    std::mt19937_64 random(3);
    for (uint64_t n = 1; n <= 100; ++n) {
      std::set<uint64_t> different;
      for (int i = 0; i < 20; ++i) different.insert(random() % 15 * (random() % 20));
      const std::vector<uint64_t> keys(different.begin(), different.end());
      const std::vector<float> packed =
          PackRows(keys, std::vector<float>(keys.size() * kWidth, 1.f));
      push_pull::ChunkPush push;
      push.key = {0, kLife, n};
      push.learning_rate = 0.1;
      push.gradient = packed;
      ASSERT_TRUE(primary->Apply(0, push, {}).ok());
      if (n > 40) {
        ASSERT_TRUE(backup->Replay(0, push, static_cast<int64_t>(n)).ok());
      }
      if (n == 40) {
        const auto state = DecodeState(EncodeState(*primary->Copy(0)));
        ASSERT_TRUE(state.ok()) << state.status();
        ASSERT_EQ(state->slots.size(), eviction == Eviction::kLeastFrequent ? 3u : 2u);
        EXPECT_FALSE(state->counted.empty());
        ASSERT_TRUE(backup->Restore(0, *state).ok());
      }
      Rows(*primary, keys);
    }
    const auto by_key = [](const ChunkState& state) {
      const push_pull::PackedRows packed = *push_pull::UnpackRows(state.parameters, kWidth);
      std::map<uint64_t, std::vector<float>> all;
      for (size_t i = 0; i < packed.keys.size(); ++i) {
        std::vector<float>& row = all[packed.keys[i]];
        row.assign(packed.rows.begin() + i * kWidth, packed.rows.begin() + (i + 1) * kWidth);
        for (const std::vector<float>& slot : state.slots) {
          const size_t each = slot.size() / packed.keys.size();
          row.insert(row.end(), slot.begin() + i * each, slot.begin() + (i + 1) * each);
        }
      }
      return all;
    };
    const ChunkState mine = *primary->Copy(0), theirs = *backup->Copy(0);
    EXPECT_EQ(by_key(mine), by_key(theirs));
    EXPECT_EQ(mine.counted, theirs.counted);
    const push_pull::TableStatistics statistics = primary->tables().at(1);
    EXPECT_LE(statistics.rows, 50);
    EXPECT_GT(statistics.evictions, 0);
    EXPECT_GT(statistics.refused, 0);
    EXPECT_GT(statistics.lookups, statistics.hits);
    EXPECT_GT(statistics.hits, 0);
  }
}

TEST_F(RowStore, RefusesWhatIsNoRows) {
  ASSERT_TRUE(store_->Fill(0, {}).ok());
  const std::vector<float> odd(kWidth + 1);
  EXPECT_THAT(std::string(store_->Apply(0, {{0, kLife, 1}, 0, 1, odd}, {}).status().message()),
              HasSubstr("4 elements are no whole number of rows of width 3"));
  ChunkState state;
  state.parameters = PackRows(std::vector<uint64_t>{1}, std::vector<float>(kWidth));
  state.slots.assign(2, std::vector<float>(1));
  EXPECT_THAT(std::string(store_->Restore(0, state).message()),
              HasSubstr("a slot of 1 rows has 1 elements, not 3"));
  std::vector<float> few(2);
  EXPECT_FALSE(store_->PullRows(0, std::vector<uint64_t>{1}, few).ok());
}

// The first key from `key` on that is at home there.
uint64_t KeyAt(int server, int chunk, uint64_t key = 0) {
  while (true) {
    const RowPlace place = PlaceOfRow(key, 2);
    if (place.server == server && place.chunk == chunk) return key;
    ++key;
  }
}

TEST(RowPlaces, AKeyOfAnotherChunkOrTwiceInAPushIsRefused) {
  std::vector<Chunk> chunks = {{1, 0, 4, 0}};
  for (int c = 0; c < kRowChunks; ++c) chunks.push_back({1, 0, 0, 0, 1});
  const auto store = ShardStore::Make({chunks, {SgdSpec{}}, {{1, OptionsOf(SgdSpec{})}}, 2});
  store->Admit(0, kLife);
  ASSERT_TRUE(store->Fill(0, std::vector<float>(4)).ok());
  for (int c = 1; c <= kRowChunks; ++c) ASSERT_TRUE(store->Fill(c, {}).ok());
  const uint64_t own = KeyAt(1, 2), second = KeyAt(1, 2, own + 1);
  const auto packed = [](std::vector<uint64_t> keys) {
    return PackRows(keys, std::vector<float>(keys.size() * kWidth, 1));
  };
  const auto push = [&](const std::vector<uint64_t>& keys, uint64_t sequence) {
    const std::vector<float> rows = packed(keys);
    return store->Apply(3, {{0, kLife, sequence}, 0, 0.5, rows}, {}).status();
  };
  ASSERT_TRUE(push({own, second}, 1).ok());
  const auto before = *store->Copy(3);
  for (const uint64_t other : {KeyAt(0, 2), KeyAt(1, 5)}) {
    const std::string sentence = fmt::format("key {} came, which belongs to chunk", other);
    EXPECT_THAT(std::string(push({own, other}, 2).message()), HasSubstr(sentence));
    std::vector<float> rows(kWidth);
    EXPECT_THAT(std::string(store->PullRows(3, {&other, 1}, rows).status().message()),
                HasSubstr(sentence));
    ChunkState state;
    state.parameters = packed({other});
    EXPECT_THAT(std::string(store->Restore(3, state).message()), HasSubstr(sentence));
  }
  EXPECT_THAT(std::string(push({own, second, own}, 2).message()),
              HasSubstr("chunk 3: 3 rows came, but only 2 different keys"));
  EXPECT_EQ(*store->Copy(3), before);
  EXPECT_TRUE(push({own}, 2).ok());
}

// ---- Over connections

// Two ps tasks, each the other's backup or none.
// Keeps what a server is to be filled with.
class Collected final : public chief::ShardClient::Filling {
 public:
  explicit Collected(std::vector<proto::ChunkContent>* all) : all_(all) {}
  absl::Status Write(const proto::ChunkContent& chunk) override {
    all_->push_back(chunk);
    return absl::OkStatus();
  }
  absl::Status Finish() override { return absl::OkStatus(); }

 private:
  std::vector<proto::ChunkContent>* const all_;
};

class RowService : public ::testing::TestWithParam<bool> {
 protected:
  RowService() {
    job_.variables = {{"w", {40}, 0}, Table("users")};
    job_.optimizer = R"("adagrad")";
    job_.parameter_server = GetParam() ? R"({"checksum": true, "connections": 3})" : "{}";
    for (int task : {0, 1}) {
      PsServiceOptions options;
      options.task = task;
      ps_.push_back(std::make_unique<TestPs>(options));
      EXPECT_TRUE(ps_[task]->Create(job_.Create(task)).ok());
      EXPECT_TRUE(ps_[task]->SetWorkers({{0, kLife}, {1, kLife}}, 1).ok());
      for (int shard : {0, 1}) {
        if (GetParam() || shard == task) Fill(task, Empty(shard));
      }
    }
    listener_ = *transport::DataListener::Create({.bind_address = "127.0.0.1"});
  }
  ~RowService() override {
    {
      absl::MutexLock lock(&mutex_);
      ended_ = true;
      changed_.SignalAll();
    }
    client_.reset();
    other_.reset();
    ps_.clear();
  }
  std::vector<proto::ChunkContent> Empty(int shard) const {
    std::vector<proto::ChunkContent> contents = Content(job_, shard, 0);
    return contents;
  }
  // A file of rows, as a checkpoint has it.
  std::shared_ptr<const checkpoint::RowSource> RowsIn(const std::string& bytes) {
    const std::string path = fmt::format("/rows-{}", ++row_files_);
    {
      auto file = *row_disk_.Create(path);
      EXPECT_TRUE(file->Append(bytes).ok() && file->Close().ok());
    }
    auto rows = checkpoint::OpenRows(*row_disk_.Open(path));
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() ? *rows : nullptr;
  }
  // Sends rows like the chief, and appends them to `contents`, by shard.
  void SendRows(const checkpoint::RowSources& files,
                std::vector<std::vector<proto::ChunkContent>>* contents) {
    const Layout layout = job_.layout();
    std::vector<Collected> to;
    for (auto& of_shard : *contents) to.emplace_back(&of_shard);
    chief::RowFiller::Fillings fillings;
    for (size_t shard = 0; shard < to.size(); ++shard)
      fillings[static_cast<int>(shard)] = {&to[shard]};
    chief::RowFiller filler(layout, fillings);
    const absl::Status filled =
        filler.Fill({1, "users", OptionsOf(ParseOptimizer("adagrad")->rule)}, files);
    EXPECT_TRUE(filled.ok()) << filled;
  }
  void Fill(int task, const std::vector<proto::ChunkContent>& contents) {
    const auto filled = ps_[task]->Fill(contents);
    EXPECT_TRUE(filled.ok()) << filled.status();
  }
  // Where each shard's primary is; -1: no backup.
  void SetView(int number, std::vector<int> primaries, std::vector<int> backups, bool in_sync) {
    proto::View view;
    view.set_number((1ull << 32) | number);
    view.set_ticket("ticket");
    ClientView client_view = {view.number(), "ticket", {}};
    for (int shard : {0, 1}) {
      proto::ShardPlace& place = *view.add_shards();
      place.set_shard(shard);
      place.set_primary(primaries[shard]);
      place.set_backup(backups[shard]);
      if (backups[shard] >= 0) place.set_backup_address(ps_[backups[shard]]->address());
      place.set_backup_in_sync(in_sync);
      client_view.shards.push_back({primaries[shard], ps_[primaries[shard]]->address(), "host"});
    }
    for (auto& ps : ps_) {
      if (ps != nullptr) {
        EXPECT_TRUE(ps->SetView(view).ok());
      }
    }
    absl::MutexLock lock(&mutex_);
    view_ = std::move(client_view);
    changed_.SignalAll();
  }
  absl::StatusOr<ClientView> NextView(uint64_t newer_than) {
    absl::MutexLock lock(&mutex_);
    while (!ended_ && view_.number <= newer_than)
      if (changed_.WaitWithTimeout(&mutex_, absl::Seconds(20))) break;
    if (view_.number > newer_than) return view_;
    return DeadlinePassed("no newer view");
  }
  void MakeClient() { client_ = ClientOf(0); }
  std::unique_ptr<PushPullClient> ClientOf(int worker) {
    push_pull::ClientOptions options;
    options.worker = worker;
    options.incarnation = kLife;
    options.layout = job_.layout();
    options.digest = job_.digest();
    options.options = *push_pull::ParseParameterServer(*ParseJson(job_.parameter_server, "test"));
    options.listener = listener_.get();
    options.next_view = [this](uint64_t newer_than) { return NextView(newer_than); };
    for (int shard : {0, 1}) {
      std::vector<float>& memory = memory_.emplace_back(options.layout.elements[shard]);
      options.parameters.push_back({memory});
    }
    return *PushPullClient::Make(std::move(options));
  }
  // Keys by place.
  std::map<std::pair<int, int>, std::vector<uint64_t>> Spread(
      const std::vector<uint64_t>& keys) const {
    std::map<std::pair<int, int>, std::vector<uint64_t>> spread;
    const Layout layout = job_.layout();
    for (const uint64_t key : keys) {
      const RowPlace place = PlaceOfRow(key, 2);
      const auto& chunks = layout.chunks[place.server];
      const auto first =
          std::ranges::find_if(chunks, [](const Chunk& chunk) { return chunk.rows(); });
      spread[{place.server, static_cast<int>(first - chunks.begin()) + place.chunk}].push_back(key);
    }
    return spread;
  }
  absl::Status PushOnes(uint64_t sequence, const std::vector<uint64_t>& keys) {
    return Push(*client_, sequence, keys).status();
  }
  absl::StatusOr<PushPullClient::Outcome> Push(PushPullClient& client, uint64_t sequence,
                                               const std::vector<uint64_t>& keys) {
    client.Begin(sequence, 0, {0.5});
    std::vector<std::vector<float>> packed;
    const auto spread = Spread(keys);
    packed.reserve(spread.size());
    std::vector<push_pull::RowPush> pushes;
    for (const auto& [place, own] : spread) {
      packed.push_back(PackRows(own, std::vector<float>(own.size() * kWidth, 1)));
      pushes.push_back({place.first, place.second, packed.back(), others_[place]});
    }
    client.LaunchRows(pushes);
    return client.Finish();
  }
  // Pulls without waiting.
  std::shared_ptr<RowFetch> Fetch(const std::vector<uint64_t>& keys) {
    auto fetch = std::make_shared<RowFetch>();
    fetch->rows.resize(keys.size() * kWidth);
    const auto spread = Spread(keys);
    for (const auto& [place, own] : spread)
      fetch->keys.insert(fetch->keys.end(), own.begin(), own.end());
    size_t at = 0;
    for (const auto& [place, own] : spread) {
      fetch->pulls.push_back({place.first, place.second,
                              std::span<const uint64_t>(fetch->keys).subspan(at, own.size()),
                              std::span(fetch->rows).subspan(at * kWidth, own.size() * kWidth)});
      at += own.size();
    }
    client_->FetchRows({fetch});
    return fetch;
  }
  // Waits for it. What is pushed next was computed from it.
  std::map<uint64_t, std::vector<float>> Fetched(const RowFetch& fetch) {
    const absl::Status status = client_->Await(fetch);
    EXPECT_TRUE(status.ok()) << status;
    for (const RowPull& pull : fetch.pulls) others_[{pull.shard, pull.chunk}] = pull.others;
    std::map<uint64_t, std::vector<float>> all;
    for (size_t i = 0; i < fetch.keys.size(); ++i)
      all[fetch.keys[i]].assign(fetch.rows.begin() + static_cast<int64_t>(i * kWidth),
                                fetch.rows.begin() + static_cast<int64_t>((i + 1) * kWidth));
    return all;
  }
  std::map<uint64_t, std::vector<float>> PullAll(const std::vector<uint64_t>& keys) {
    const auto spread = Spread(keys);
    std::map<std::pair<int, int>, std::vector<float>> rows;
    std::vector<RowPull> pulls;
    for (const auto& [place, own] : spread) {
      rows[place].resize(own.size() * kWidth);
      pulls.push_back({place.first, place.second, own, rows[place]});
    }
    const auto fetch = std::make_shared<RowFetch>();
    fetch->pulls = pulls;
    client_->FetchRows({fetch});
    const absl::Status pulled = client_->Await(*fetch);
    EXPECT_TRUE(pulled.ok()) << pulled;
    size_t next = 0;
    for (const auto& [place, own] : spread) others_[place] = fetch->pulls[next++].others;
    std::map<uint64_t, std::vector<float>> all;
    for (const auto& [place, own] : spread)
      for (size_t i = 0; i < own.size(); ++i)
        all[own[i]].assign(rows[place].begin() + static_cast<int64_t>(i * kWidth),
                           rows[place].begin() + static_cast<int64_t>((i + 1) * kWidth));
    return all;
  }
  std::map<uint64_t, std::vector<float>> Expected(const EmbeddingTable& table,
                                                  const std::vector<uint64_t>& keys) {
    std::map<uint64_t, std::vector<float>> all;
    for (const uint64_t key : keys) {
      all[key].resize(kWidth);
      EXPECT_TRUE(table.Peek({&key, 1}, all[key]).ok());
    }
    return all;
  }

  TestJob job_;
  std::vector<std::unique_ptr<TestPs>> ps_;
  std::unique_ptr<transport::DataListener> listener_;
  checkpoint::MemoryFileSystem row_disk_;
  int row_files_ = 0;
  absl::Mutex mutex_;
  absl::CondVar changed_;
  ClientView view_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<std::vector<float>> memory_;
  std::unique_ptr<PushPullClient> client_, other_;
  std::map<std::pair<int, int>, int64_t> others_;  // of the last pull
};
INSTANTIATE_TEST_SUITE_P(Replicas, RowService, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Two" : "One"; });

TEST_P(RowService, PullsAndPushesByKeyAndKeepsCopies) {
  const bool two = GetParam();
  SetView(1, {0, 1}, two ? std::vector{1, 0} : std::vector{-1, -1}, two);
  MakeClient();
  std::vector<uint64_t> keys(500);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * i * 7919;
  std::vector<uint64_t> some(keys.begin(), keys.begin() + 40), all = keys;
  all.push_back(~0ull);
  const auto table = EmbeddingTable::Make(OptionsOf(ParseOptimizer("adagrad")->rule));
  EXPECT_EQ(PullAll(all), Expected(*table, all));
  for (uint64_t n = 1; n <= 3; ++n) {
    const std::vector<uint64_t>& pushed = n == 2 ? some : keys;
    ASSERT_TRUE(PushOnes(n, pushed).ok());
    ASSERT_TRUE(table->Push(pushed, std::vector<float>(pushed.size() * kWidth, 1.f), 0.5).ok());
  }
  EXPECT_EQ(PullAll(all), Expected(*table, all));
  // The number of a push that was there: nothing happens.
  ASSERT_TRUE(PushOnes(3, keys).ok());
  EXPECT_EQ(PullAll(all), Expected(*table, all));
  ASSERT_TRUE(client_->Pull().ok()) << "of the dense variable";

  if (two) {
    // Task 0 is lost: task 1 has all that was acknowledged.
    ps_[0].reset();
    SetView(2, {1, 1}, {-1, -1}, false);
    EXPECT_EQ(PullAll(all), Expected(*table, all));
    ASSERT_TRUE(PushOnes(4, keys).ok());
    ASSERT_TRUE(table->Push(keys, std::vector<float>(keys.size() * kWidth, 1.f), 0.5).ok());
    EXPECT_EQ(PullAll(all), Expected(*table, all));
    return;
  }
  // A copy goes back after more pushes, which did not change it.
  std::vector<std::vector<proto::ChunkContent>> copies;
  for (int task : {0, 1}) {
    ASSERT_TRUE(ps_[task]->Cut("cut").ok());
    const auto read = ps_[task]->Read("cut", task);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->size(), job_.layout().chunks[task].size() - kRowChunks) << "without rows";
    copies.push_back(*read);
  }
  ASSERT_TRUE(PushOnes(4, keys).ok());
  EXPECT_NE(PullAll(all), Expected(*table, all));
  checkpoint::RowSources files;
  for (int task : {0, 1}) {
    const absl::StatusOr<std::string> file = ps_[task]->ReadRows("cut", task);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(static_cast<int64_t>(file->size()), ps_[task]->bytes_of_rows);
    files.push_back(RowsIn(*file));
    ASSERT_NE(files.back(), nullptr);
  }
  SendRows(files, &copies);
  for (int task : {0, 1}) Fill(task, copies[task]);
  EXPECT_EQ(PullAll(all), Expected(*table, all));
  // Training continues, because slots are restored too.
  ASSERT_TRUE(PushOnes(5, keys).ok());
  ASSERT_TRUE(table->Push(keys, std::vector<float>(keys.size() * kWidth, 1.f), 0.5).ok());
  EXPECT_EQ(PullAll(all), Expected(*table, all));
  EXPECT_FALSE(ps_[0]->ReadRows("other", 0).ok());
  EXPECT_FALSE(ps_[0]->ReadRows("cut", 1).ok());
}

TEST_P(RowService, RowsThatDoNotComeWholeAreRefused) {
  std::vector<proto::ChunkContent> contents = Content(job_, 0, 0);
  proto::ChunkContent& last = contents.back();
  last.set_more(true);
  last.set_updates(7);
  const auto refused = [&](const std::vector<proto::ChunkContent>& messages) {
    const auto filled = ps_[0]->Fill(messages);
    EXPECT_TRUE(absl::IsInvalidArgument(filled.status())) << filled.status();
    return std::string(Message(filled.status()));
  };
  const std::string lacks = fmt::format("shard 0, chunk {} lacks rows", last.chunk());
  EXPECT_EQ(refused(contents), lacks) << "the stream ends there";
  EXPECT_EQ(refused({last, contents[0]}), lacks) << "another chunk follows, and nothing more";
  proto::ChunkContent other = last;
  other.set_more(false);
  other.add_slots("1234");
  other.add_slots("1234");
  EXPECT_THAT(refused({last, other}), HasSubstr("slots"));
  SetView(1, {0, 1}, {-1, -1}, false);
  ASSERT_TRUE(ps_[0]->Cut("cut").ok());
  EXPECT_EQ(ps_[0]->Read("cut", 0)->back().updates(), 0) << "nothing of it left a trace";
}

TEST_P(RowService, RowsAreFetchedWhileOthersPush) {
  const bool two = GetParam();
  SetView(1, {0, 1}, two ? std::vector{1, 0} : std::vector{-1, -1}, two);
  MakeClient();
  std::vector<uint64_t> keys(300);
  std::iota(keys.begin(), keys.end(), uint64_t{5});
  const auto table = EmbeddingTable::Make(OptionsOf(ParseOptimizer("adagrad")->rule));
  const auto update = [&] {
    ASSERT_TRUE(table->Push(keys, std::vector<float>(keys.size() * kWidth, 1.f), 0.5).ok());
  };
  const auto at_first = Expected(*table, keys);
  const auto before = Fetch(keys);
  ASSERT_TRUE(PushOnes(1, keys).ok());
  const auto after = Fetch(keys);
  update();
  EXPECT_EQ(Fetched(*before), at_first);
  EXPECT_EQ(Fetched(*after), Expected(*table, keys)) << "it contains the push before it";

  other_ = ClientOf(1);
  for (uint64_t n = 1; n <= 2; ++n) ASSERT_TRUE(Push(*other_, n, keys).ok());
  // Computed from `before`: two updates of another worker's since, and one of its own.
  (void)Fetched(*before);
  auto outcome = Push(*client_, 2, keys);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->staleness_max, 2);
  EXPECT_EQ(outcome->staleness_mean, 2);
  const auto last = Fetch(keys);
  ASSERT_TRUE(PushOnes(3, keys).ok());
  (void)Fetched(*last);
  outcome = Push(*client_, 4, keys);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->staleness_max, 0);
  for (int n = 0; n < 5; ++n) update();
  EXPECT_EQ(PullAll(keys), Expected(*table, keys));
}

// The connections of every view end in the middle of pulls and pushes.
TEST_P(RowService, WhatIsFetchedAheadIsAskedForAgainInANewView) {
  const bool two = GetParam();
  const std::vector backups = two ? std::vector{1, 0} : std::vector{-1, -1};
  SetView(1, {0, 1}, backups, two);
  MakeClient();
  std::vector<uint64_t> keys(2000);
  std::iota(keys.begin(), keys.end(), uint64_t{5});
  const auto table = EmbeddingTable::Make(OptionsOf(ParseOptimizer("adagrad")->rule));
  auto fetch = Fetch(keys);
  int resumed = 0;
  for (int round = 1; round <= 20; ++round) {
    (void)Fetched(*fetch);
    for (const RowPull& pull : fetch->pulls) EXPECT_EQ(pull.others, 0) << "round " << round;
    std::thread viewer([&] { SetView(1 + round, {0, 1}, backups, two); });
    const auto during = Fetch(keys);  // before the push, or after it
    const auto outcome = Push(*client_, round, keys);
    fetch = Fetch(keys);
    viewer.join();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->staleness_max, 0);
    resumed += outcome->resumed;
    const auto older = Expected(*table, keys);
    ASSERT_TRUE(table->Push(keys, std::vector<float>(keys.size() * kWidth, 1.f), 0.5).ok());
    const auto newer = Expected(*table, keys);
    for (const auto& [key, row] : Fetched(*during))
      EXPECT_TRUE(row == older.at(key) || row == newer.at(key)) << key;
    for (const RowPull& pull : during->pulls) EXPECT_EQ(pull.others, 0) << "round " << round;
    EXPECT_EQ(Fetched(*fetch), newer) << "round " << round;
  }
  EXPECT_GT(resumed, 0);
}

}  // namespace
}  // namespace muster::ps
