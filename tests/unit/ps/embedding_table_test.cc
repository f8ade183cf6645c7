#include "common/push_pull/rows/embedding_table.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "common/base/hash.h"
#include "common/push_pull/rows/row_spread.h"

namespace muster::push_pull {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Rows = std::map<uint64_t, std::vector<float>>;

Rows All(const EmbeddingTable& table) {
  Rows rows;
  table.Export([&rows](uint64_t key, std::span<const float> row) {
    EXPECT_TRUE(rows.emplace(key, std::vector<float>(row.begin(), row.end())).second);
  });
  return rows;
}

std::vector<float> PeekOne(const EmbeddingTable& table, uint64_t key, int64_t width) {
  std::vector<float> row(width);
  EXPECT_TRUE(table.Peek({&key, 1}, row).ok());
  return row;
}

TEST(EmbeddingTable, ARowIsAFunctionOfSeedAndKey) {
  const auto one = EmbeddingTable::Make({.width = 5});
  const auto other = EmbeddingTable::Make({.width = 5, .shards = 2});
  const std::vector<uint64_t> keys = {7, 0, ~0ull, 1ull << 40, 7};
  std::vector<float> first(25), second(25);
  ASSERT_TRUE(one->Peek(keys, first).ok());
  PeekOne(*other, 99, 5);
  for (size_t i = keys.size(); i-- > 0;) {
    const std::vector<float> row = PeekOne(*other, keys[i], 5);
    std::copy(row.begin(), row.end(), second.begin() + static_cast<int64_t>(i) * 5);
  }
  EXPECT_EQ(first, second);
  EXPECT_EQ(one->size(), 0) << "looking up makes nothing";
  EXPECT_NE(PeekOne(*one, 7, 5), PeekOne(*one, 8, 5));
  EXPECT_NE(PeekOne(*EmbeddingTable::Make({.width = 5, .seed = 1}), 7, 5), PeekOne(*one, 7, 5));
}

// More keys than are looked up together. Every third has a row, and some occur again.
TEST(EmbeddingTable, ALargeBatchHasTheRowsOfItsKeys) {
  for (const int shards : {1, 4}) {
    const auto table = EmbeddingTable::Make({.width = 17, .rule = SgdSpec{}, .shards = shards});
    std::vector<uint64_t> keys, trained;
    for (uint64_t i = 0; i < 1000; ++i) keys.push_back(i % 7 == 6 ? i - 5 : i * i + 1);
    for (uint64_t i = 0; i < 1000; i += 3) trained.push_back(i * i + 1);
    ASSERT_TRUE(table->Push(trained, std::vector<float>(trained.size() * 17, -1.f), 1, true).ok());
    EXPECT_EQ(table->size(), static_cast<int64_t>(trained.size()));
    std::vector<float> rows(keys.size() * 17);
    ASSERT_TRUE(table->Peek(keys, rows).ok());
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::vector<float> row(rows.begin() + static_cast<int64_t>(i) * 17,
                                   rows.begin() + static_cast<int64_t>(i + 1) * 17);
      ASSERT_EQ(row, PeekOne(*table, keys[i], 17)) << i;
    }
    EXPECT_EQ(table->size(), static_cast<int64_t>(trained.size()));
  }
}

TEST(CopyRow, CopiesEachWidth) {
  for (int64_t width = 0; width <= 100; ++width) {
    std::vector<float> from(width), to(width + 1, -1.f);
    std::iota(from.begin(), from.end(), 1.f);
    CopyRow(from.data(), width, to.data());
    EXPECT_EQ(to.back(), -1.f) << width;
    to.pop_back();
    EXPECT_EQ(to, from) << width;
  }
}

TEST(EmbeddingTable, UpdatesMakeRowsAndLookingUpMakesNone) {
  const auto table = EmbeddingTable::Make({.width = 3, .initializer = {}, .rule = SgdSpec{}});
  const std::vector<uint64_t> keys = {5, 6, 5, ~0ull};
  std::vector<float> before(12), after(12);
  ASSERT_TRUE(table->Peek(keys, before).ok());
  EXPECT_EQ(table->size(), 0) << "nothing is made";
  ASSERT_TRUE(table->Push(keys, std::vector<float>(12, 1.f), 0.5).ok());
  EXPECT_EQ(table->size(), 3);
  ASSERT_TRUE(table->Peek(keys, after).ok());
  EXPECT_FLOAT_EQ(after[0], before[0] - 2 * 0.5f);
  EXPECT_FLOAT_EQ(after[3], before[3] - 0.5f);
  EXPECT_EQ(table->statistics(),
            (TableStatistics{.rows = 3, .bytes = 36, .lookups = 8, .hits = 4}));
  EXPECT_THAT(std::string(table->Peek(keys, std::span(after).first(2)).message()),
              HasSubstr("have 12 elements, not 2"));
}

TEST(EmbeddingTable, InitialisersKeepTheirPromise) {
  using Kind = Initializer::Kind;
  const auto rows = [](Initializer how) {
    const auto table = EmbeddingTable::Make({.width = 100, .initializer = how});
    std::vector<float> all(100 * 100);
    std::vector<uint64_t> keys(100);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
    EXPECT_TRUE(table->Peek(keys, all).ok());
    return all;
  };
  EXPECT_THAT(rows({Kind::kZeros}), Each(0));
  EXPECT_THAT(rows({Kind::kConstant, 0.5}), Each(0.5));
  double sum = 0, squares = 0;
  for (const float x : rows({Kind::kUniform, 0.3})) {
    EXPECT_LE(std::abs(x), 0.3f);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 10000, 0, 0.01);
  EXPECT_NEAR(squares / 10000, 0.3 * 0.3 / 3, 0.002);
  sum = squares = 0;
  for (const float x : rows({Kind::kNormal, 2})) {
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 10000, 0, 0.1);
  EXPECT_NEAR(squares / 10000, 4, 0.2);
}

// Checkpoints of before, and other servers, have rows that began so.
TEST(EmbeddingTable, WhatRowsBeginWithIsWhatItAlwaysWas) {
  using Kind = Initializer::Kind;
  const auto unit = [](uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; };
  const auto expected = [&](const Initializer& how, uint64_t key, int64_t width) {
    uint64_t state = SplitMix64(11) ^ SplitMix64(key);
    std::vector<float> row;
    for (int64_t i = 0; i < width; ++i) {
      const double first = unit(state = SplitMix64(state));
      if (how.kind == Kind::kUniform) {
        row.push_back(static_cast<float>(how.scale * (2 * first - 1)));
        continue;
      }
      const double second = unit(state = SplitMix64(state));
      row.push_back(static_cast<float>(how.scale * std::sqrt(-2 * std::log(1 - first)) *
                                       std::cos(2 * std::numbers::pi * second)));
    }
    return row;
  };
  std::mt19937_64 random(4);
  for (const Initializer& how :
       {Initializer{Kind::kUniform, 0.05}, Initializer{Kind::kNormal, 0.3}})
    for (const int64_t width : {1, 7, 16}) {
      const auto table =
          EmbeddingTable::Make({.width = width, .initializer = how, .seed = 11, .rule = SgdSpec{}});
      for (size_t count = 1; count < 80; count += 1 + count / 3) {  // whole blocks, and parts
        std::vector<uint64_t> keys(count);
        for (uint64_t& key : keys) key = random();
        std::vector<float> looked_up(count * width), made(count * width);
        ASSERT_TRUE(table->Peek(keys, looked_up).ok());
        ASSERT_TRUE(table->Push(keys, std::vector<float>(count * width), 0).ok());
        ASSERT_TRUE(table->Peek(keys, made).ok());
        EXPECT_EQ(made, looked_up);
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(std::vector<float>(made.begin() + i * width, made.begin() + (i + 1) * width),
                    expected(how, keys[i], width));
      }
    }
}

TEST(EmbeddingTable, ReadersDoNotWaitForEachOther) {
  const auto table = EmbeddingTable::Make({.width = 2, .rule = SgdSpec{}, .shards = 1});
  const std::vector<uint64_t> keys = {1, 2};
  ASSERT_TRUE(table->Push(keys, std::vector<float>(4, 1.f), 1).ok());
  int visited = 0;
  table->Export([&](uint64_t, std::span<const float>) {
    std::thread other([&] {
      PeekOne(*table, 1, 2);
      EXPECT_EQ(table->statistics().rows, 2);
    });
    other.join();  // ctest bounds it
    ++visited;
  });
  EXPECT_EQ(visited, 2);
}

TEST(EmbeddingTable, KeysThatAreToBeDistinctAreRefusedTogether) {
  const auto table = EmbeddingTable::Make({.width = 1, .rule = SgdSpec{}});
  const std::vector<uint64_t> keys = {4, 5, 4, 6, 5, 4};
  const absl::Status pushed = table->Push(keys, std::vector<float>(6, 1.f), 1, /*distinct=*/true);
  EXPECT_THAT(std::string(Message(pushed)), HasSubstr("6 rows came, but only 3 different keys"));
  EXPECT_EQ(table->size(), 0);
  EXPECT_EQ(table->updates(), 0);
  EXPECT_TRUE(
      table->Push(std::span(keys).first(2), std::vector<float>(2, 1.f), 1, /*distinct=*/true).ok());
}

TEST(EmbeddingTable, UpdatesAreThoseOfTheDenseRule) {
  for (const char* text :
       {R"("sgd")", R"({"name": "sgd", "momentum": 0.9})", R"("adagrad")", R"("adam")",
        R"({"name": "adam", "amsgrad": true})", R"({"name": "rmsprop", "momentum": 0.5})",
        R"("ftrl")", R"("rowwise_adagrad")"}) {
    const RuleSpec rule = ParseOptimizer(Json::parse(text))->rule;
    const int64_t width = 7;
    const auto table = EmbeddingTable::Make({.width = width, .rule = rule, .shards = 4});
    // The same by one-row tables, where nothing is sorted or batched.
    std::map<uint64_t, std::unique_ptr<EmbeddingTable>> alone;
    std::mt19937_64 random(3);
    std::normal_distribution<float> normal;
    for (int step = 1; step <= 10; ++step) {
      std::set<uint64_t> batch;
      for (int i = 0; i < 50; ++i) batch.insert(random() % 80 * 1000003);
      const std::vector<uint64_t> keys(batch.begin(), batch.end());
      std::vector<float> gradients(keys.size() * width);
      for (float& g : gradients) g = normal(random);
      ASSERT_TRUE(table->Push(keys, gradients, 0.1).ok());
      for (size_t i = 0; i < keys.size(); ++i) {
        auto& one = alone[keys[i]];
        if (one == nullptr) one = EmbeddingTable::Make({.width = width, .rule = rule, .shards = 1});
        one->set_updates(step - 1);
        ASSERT_TRUE(one->Push({&keys[i], 1}, {gradients.data() + i * width, 7}, 0.1).ok());
      }
    }
    Rows expected;
    for (const auto& [key, one] : alone) expected.merge(All(*one));
    EXPECT_EQ(All(*table), expected) << text;
    EXPECT_EQ(table->updates(), 10);
  }
}

TEST(EmbeddingTable, GrowsAndKeepsEveryRow) {
  const auto table = EmbeddingTable::Make(
      {.width = 3, .initializer = {Initializer::Kind::kZeros}, .rule = SgdSpec{}, .shards = 2});
  constexpr uint64_t kRows = 200000;
  std::vector<uint64_t> keys(1000);
  for (uint64_t at = 0; at < kRows; at += keys.size()) {
    std::vector<float> gradients;
    for (size_t i = 0; i < keys.size(); ++i) {
      keys[i] = (at + i) << 20;  // low bits that are all the same
      gradients.insert(gradients.end(), 3, -static_cast<float>(at + i));
    }
    ASSERT_TRUE(table->Push(keys, gradients, 1).ok());
  }
  EXPECT_EQ(table->size(), static_cast<int64_t>(kRows));
  for (uint64_t i = 0; i < kRows; i += 997)
    ASSERT_THAT(PeekOne(*table, i << 20, 3), Each(static_cast<float>(i)));
}

TEST(EmbeddingTable, AnExportRestoredElsewhereGoesOnTheSame) {
  const RuleSpec rule = AdamSpec{};
  const auto table = EmbeddingTable::Make({.width = 2, .rule = rule});
  const auto other = EmbeddingTable::Make({.width = 2, .rule = rule, .shards = 1});
  const std::vector<uint64_t> keys = {3, 5, 8};
  const std::vector<float> gradients = {1, -1, 0.5, 2, 3, -4};
  ASSERT_TRUE(table->Push(keys, gradients, 0.1).ok());
  for (const auto& [key, row] : All(*table)) ASSERT_TRUE(other->Restore(key, row).ok());
  other->set_updates(table->updates());
  for (EmbeddingTable* t : {table.get(), other.get()})
    ASSERT_TRUE(t->Push(keys, gradients, 0.1).ok());
  EXPECT_EQ(All(*table), All(*other));
  EXPECT_EQ(table->row_elements(), 6);
  const std::vector<float> five(5);
  EXPECT_EQ(ExitCodeOf(other->Restore(1, five)), ExitCode::kConfiguration);
}

TEST(EmbeddingTable, WrongSizesChangeNothing) {
  const auto table = EmbeddingTable::Make({.width = 4});
  const std::vector<uint64_t> keys = {1, 2};
  std::vector<float> seven(7);
  for (const absl::Status& status : {table->Peek(keys, seven), table->Push(keys, seven, 0.1)}) {
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration);
    EXPECT_THAT(std::string(Message(status)),
                HasSubstr("2 keys of width 4 have 8 elements, not 7"));
  }
  EXPECT_EQ(table->size(), 0);
  EXPECT_TRUE(table->Peek({}, {}).ok());
}

TEST(EmbeddingTable, NoUpdateIsLostAmongManyThreads) {
  const auto table = EmbeddingTable::Make(
      {.width = 2, .initializer = {Initializer::Kind::kZeros}, .rule = SgdSpec{}, .shards = 2});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&table] {
      std::vector<uint64_t> keys(100);
      for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
      const std::vector<float> gradients(200, -1);
      for (int n = 0; n < 100; ++n) ASSERT_TRUE(table->Push(keys, gradients, 1).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& [key, row] : All(*table)) EXPECT_THAT(row, ElementsAre(400, 400));
}

TEST(EmbeddingTable, ARowwiseAccumulatorIsTheMeanOfSquares) {
  const auto table = EmbeddingTable::Make({.width = 11,
                                           .initializer = {Initializer::Kind::kZeros},
                                           .rule = RowwiseAdagradSpec{0.5, 0, 0}});
  const uint64_t key = 3;
  std::vector<float> gradient(11);
  double squares = 0;
  for (size_t i = 0; i < 11; ++i) {
    gradient[i] = static_cast<float>(i) - 4;
    squares += gradient[i] * gradient[i];
  }
  ASSERT_TRUE(table->Push({&key, 1}, gradient, 0.1).ok());
  const std::vector<float> row = All(*table).at(key);
  ASSERT_EQ(row.size(), 12u) << "one number beside the parameter";
  EXPECT_FLOAT_EQ(row[11], static_cast<float>(0.5 + squares / 11));
  for (size_t i = 0; i < 11; ++i)
    EXPECT_FLOAT_EQ(row[i], -0.1f * gradient[i] / std::sqrt(row[11])) << i;
  using Columns = std::vector<RowColumn>;
  EXPECT_EQ(EmbeddingTable::Columns({.width = 11, .rule = RowwiseAdagradSpec{}}),
            (Columns{{"rows", 11}, {"sum", 1}}));
}

TEST(EmbeddingTable, GradientsAreClippedByElementOrByRow) {
  const std::vector<uint64_t> keys = {1, 2};
  const std::vector<float> gradients = {3, -4, 0.3f, 0.4f};
  const auto pushed = [&](ClipOptions clip) {
    const auto table = EmbeddingTable::Make(
        {.width = 2, .initializer = {Initializer::Kind::kZeros}, .rule = SgdSpec{}, .clip = clip});
    EXPECT_TRUE(table->Push(keys, gradients, 1).ok());
    return All(*table);
  };
  const Rows by_element = pushed({.clipvalue = 0.35});
  EXPECT_THAT(by_element.at(1), ElementsAre(-0.35f, 0.35f));
  EXPECT_THAT(by_element.at(2), ElementsAre(-0.3f, -0.35f));
  const Rows by_row = pushed({.clipnorm = 1});
  EXPECT_NEAR(by_row.at(1)[0], -0.6f, 1e-6);
  EXPECT_NEAR(by_row.at(1)[1], 0.8f, 1e-6);
  EXPECT_THAT(by_row.at(2), ElementsAre(-0.3f, -0.4f)) << "is short enough";
}

// ---- Caps

EmbeddingTable::Options Capped(Eviction eviction, int64_t rows) {
  return {.width = 2,
          .initializer = {Initializer::Kind::kZeros},
          .rule = SgdSpec{},
          .shards = 1,
          .limits = {.max_rows = rows, .eviction = eviction}};
}

void PushKeys(EmbeddingTable& table, const std::vector<uint64_t>& keys) {
  ASSERT_TRUE(table.Push(keys, std::vector<float>(2 * keys.size(), -1.f), 1).ok());
}

std::set<uint64_t> KeysOf(const EmbeddingTable& table) {
  std::set<uint64_t> keys;
  for (const EmbeddingTable::Place& place : table.Places()) keys.insert(place.key);
  return keys;
}

TEST(EmbeddingTable, EvictsInTheOrderThatIsAskedFor) {
  const auto left = [](Eviction eviction) {
    const auto table = EmbeddingTable::Make(Capped(eviction, 3));
    PushKeys(*table, {1, 2});
    PushKeys(*table, {1, 3});
    PushKeys(*table, {2});
    PushKeys(*table, {2, 3});
    PushKeys(*table, {1});
    PushKeys(*table, {3});
    PushKeys(*table, {4, 3});
    EXPECT_EQ(table->statistics().evictions, 1);
    return KeysOf(*table);
  };
  using Keys = std::set<uint64_t>;
  const Keys oldest = left(Eviction::kOldest);
  EXPECT_TRUE(oldest == (Keys{2, 3, 4}) || oldest == (Keys{1, 3, 4})) << "1 and 2 are as old";
  EXPECT_EQ(left(Eviction::kLeastRecent), (Keys{1, 3, 4}));
  EXPECT_EQ(left(Eviction::kLeastFrequent), (Keys{1, 2, 3})) << "4 was updated once";
}

TEST(EmbeddingTable, ARowThatWasRemovedStartsAgain) {
  EmbeddingTable::Options options = Capped(Eviction::kLeastRecent, 1);
  options.rule = AdagradSpec{};
  options.initializer = {};
  const auto table = EmbeddingTable::Make(options);
  const std::vector<float> fresh = PeekOne(*table, 7, 2);
  PushKeys(*table, {7});
  std::vector<float> once = All(*table).at(7);
  EXPECT_NE(PeekOne(*table, 7, 2), fresh);
  PushKeys(*table, {8});
  EXPECT_EQ(KeysOf(*table), std::set<uint64_t>{8});
  EXPECT_EQ(PeekOne(*table, 7, 2), fresh);
  PushKeys(*table, {7});
  std::vector<float> again = All(*table).at(7);
  ASSERT_EQ(again.size(), 2u + 2 + 2);
  for (std::vector<float>* row : {&once, &again}) row->resize(4);  // without the time
  EXPECT_EQ(again, once) << "slots and all";
}

TEST(EmbeddingTable, HoldsNoMoreThanItsCapForEver) {
  EmbeddingTable::Options options = Capped(Eviction::kLeastRecent, 4000);
  options.shards = 4;
  const auto table = EmbeddingTable::Make(options);
  std::mt19937_64 random(1);
  std::set<const float*> memory;
  for (int step = 0; step < 1000; ++step) {
    std::vector<uint64_t> keys(200);
    for (uint64_t& key : keys) key = random() % 100000;
    PushKeys(*table, keys);
    ASSERT_LE(table->size(), 4000);
    for (const EmbeddingTable::Place& place : table->Places()) memory.insert(place.row);
  }
  EXPECT_GT(table->size(), 3500);
  EXPECT_GT(table->statistics().evictions, 100000);
  EXPECT_LE(memory.size(), 4000u + 4 * 200) << "what rows left is used again";
  // And each key is found where it is.
  for (const auto& [key, row] : All(*table))
    ASSERT_EQ(PeekOne(*table, key, 2), (std::vector<float>{row[0], row[1]})) << key;
}

TEST(EmbeddingTable, WhatIsRestoredKeepsToTheCapToo) {
  const auto large = EmbeddingTable::Make(Capped(Eviction::kLeastRecent, 1000));
  for (uint64_t first = 0; first < 1000; first += 100) {
    std::vector<uint64_t> keys(100);
    std::iota(keys.begin(), keys.end(), first);
    PushKeys(*large, keys);
  }
  const auto small = EmbeddingTable::Make(Capped(Eviction::kLeastRecent, 100));
  int64_t most = 0;
  for (const auto& [key, row] : All(*large)) {
    ASSERT_TRUE(small->Restore(key, row).ok());
    most = std::max(most, small->size());
  }
  EXPECT_LE(most, 100);
  const std::set<uint64_t> left = KeysOf(*small);
  EXPECT_GE(std::distance(left.lower_bound(900), left.end()), 80) << "those of the last update";
}

TEST(EmbeddingTable, BytesAreACapToo) {
  EmbeddingTable::Options options = Capped(Eviction::kOldest, 0);
  options.limits.max_bytes = 10 * (2 * 4 + 8);
  const auto table = EmbeddingTable::Make(options);
  for (uint64_t key = 0; key < 100; ++key) PushKeys(*table, {key});
  EXPECT_EQ(table->statistics().rows, 10);
  EXPECT_EQ(table->statistics().bytes, 160);
  EXPECT_EQ(KeysOf(*table).count(99), 1u);
}

TEST(EmbeddingTable, TheSamePushesLeaveTheSameRows) {
  for (const Eviction eviction :
       {Eviction::kOldest, Eviction::kLeastRecent, Eviction::kLeastFrequent}) {
    EmbeddingTable::Options options = Capped(eviction, 300);
    options.rule = AdamSpec{};
    options.type = RowType::kBFloat16;
    options.limits.admit_after = 2;
    const auto one = EmbeddingTable::Make(options);
    auto other = EmbeddingTable::Make(options);
    std::mt19937_64 random(5);
    for (int step = 0; step < 300; ++step) {
      std::vector<uint64_t> keys(50);
      for (uint64_t& key : keys) key = random() % 40 * (random() % 40);
      PushKeys(*one, keys);
      PushKeys(*other, keys);
      if (step % 50 == 20) {  // lookups change nothing
        for (const uint64_t key : keys) PeekOne(*one, key, 2);
        // Nor does it matter that the rows came from elsewhere.
        auto copy = EmbeddingTable::Make(options);
        for (const auto& [key, row] : All(*other)) ASSERT_TRUE(copy->Restore(key, row).ok());
        copy->RestoreCounted(other->Counted());
        copy->set_updates(other->updates());
        other = std::move(copy);
      }
    }
    EXPECT_EQ(All(*one), All(*other));
    EXPECT_EQ(one->Counted(), other->Counted());
    EXPECT_GT(one->statistics().evictions, 0);
  }
}

TEST(EmbeddingTable, ARowIsMadeInTheUpdateThatAdmitsIt) {
  EmbeddingTable::Options options = Capped(Eviction::kLeastRecent, 0);
  options.limits.admit_after = 3;
  const auto table = EmbeddingTable::Make(options);
  for (int update = 1; update <= 2; ++update) {
    PushKeys(*table, {5});
    EXPECT_EQ(table->size(), 0);
    EXPECT_EQ(table->Counted(), (std::vector<uint64_t>{5, static_cast<uint64_t>(update)}));
  }
  PushKeys(*table, {5, 6});
  EXPECT_THAT(All(*table).at(5), ElementsAre(1, 1)) << "of the third update alone";
  EXPECT_EQ(table->Counted(), (std::vector<uint64_t>{6, 1}));
  EXPECT_EQ(table->statistics().refused, 3);
}

TEST(EmbeddingTable, CountsOfKeysAreBounded) {
  EmbeddingTable::Options options = Capped(Eviction::kLeastRecent, 0);
  options.limits.admit_after = 4;
  const auto table = EmbeddingTable::Make(options);
  for (int n = 0; n < 3; ++n) PushKeys(*table, {1});
  std::vector<uint64_t> many(RowLimits::kMaxCounted);
  for (size_t i = 0; i < many.size(); ++i) many[i] = 10 + i;
  PushKeys(*table, many);  // the last one finds no room: those that came once are forgotten
  EXPECT_EQ(table->Counted(), (std::vector<uint64_t>{1, 1, many.back(), 1}));
  PushKeys(*table, {1});
  PushKeys(*table, {1});
  EXPECT_EQ(table->size(), 0) << "the count was halved";
  PushKeys(*table, {1});
  EXPECT_EQ(table->size(), 1);
}

TEST(EmbeddingTable, CountsOfKeysHaveTheirPartOfACap) {
  for (const bool by_bytes : {false, true}) {
    EmbeddingTable::Options options = Capped(Eviction::kLeastRecent, by_bytes ? 0 : 50);
    if (by_bytes) options.limits.max_bytes = 10'000;
    options.limits.admit_after = 2;
    const auto table = EmbeddingTable::Make(options);
    std::mt19937_64 random(3);
    size_t counted = 0;
    for (int step = 0; step < 2000; ++step) {
      // Some keys come again and again, among many that come once.
      PushKeys(*table, {random() % 50, 1000 + random() % 1'000'000'000});
      counted = std::max(counted, table->Counted().size() / 2);
      if (by_bytes) {
        ASSERT_LE(table->statistics().bytes, options.limits.max_bytes);
      }
    }
    EXPECT_LE(counted, 4 * 50u);
    EXPECT_GT(counted, 100u);
    EXPECT_GT(table->size(), 40) << "and those that come again have rows";
  }
}

// ---- Types

TEST(EmbeddingTable, SixteenBitRowsAreUpdatedInFloat32) {
  for (const RowType type : {RowType::kFloat16, RowType::kBFloat16}) {
    const auto table = EmbeddingTable::Make({.width = 5,
                                             .initializer = {Initializer::Kind::kConstant, 1},
                                             .rule = AdagradSpec{},
                                             .type = type});
    const auto exact = EmbeddingTable::Make(
        {.width = 5, .initializer = {Initializer::Kind::kConstant, 1}, .rule = AdagradSpec{}});
    std::vector<uint64_t> keys(100);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
    std::vector<float> gradients(500);
    for (size_t i = 0; i < 500; ++i) gradients[i] = static_cast<float>(i) / 100 - 2.5f;
    ASSERT_TRUE(table->Push(keys, gradients, 0.25).ok());
    ASSERT_TRUE(exact->Push(keys, gradients, 0.25).ok());
    const Rows rows = All(*table);
    for (const auto& [key, want] : All(*exact)) {
      const std::vector<float>& got = rows.at(key);
      for (size_t i = 0; i < 5; ++i)
        EXPECT_NEAR(got[i], want[i], type == RowType::kFloat16 ? 5e-4 : 8e-3);
      for (size_t i = 5; i < 10; ++i) EXPECT_EQ(got[i], want[i]) << "slots are float32";
      EXPECT_EQ(PeekOne(*table, key, 5), std::vector<float>(got.begin(), got.begin() + 5));
    }
    EXPECT_EQ(table->statistics().bytes, 100 * (3 + 5) * 4);
    // Through float32 and back nothing changes.
    const auto other = EmbeddingTable::Make({.width = 5, .rule = AdagradSpec{}, .type = type});
    for (const auto& [key, row] : rows) ASSERT_TRUE(other->Restore(key, row).ok());
    EXPECT_EQ(All(*other), rows);
  }
}

TEST(EmbeddingTable, SmallUpdatesOfBfloat16AddUp) {
  const auto table = EmbeddingTable::Make({.width = 8,
                                           .initializer = {Initializer::Kind::kConstant, 1},
                                           .rule = SgdSpec{},
                                           .type = RowType::kBFloat16});
  std::vector<uint64_t> keys(1000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  // A tenth of what the type can tell apart above 1: the nearest would always be 1.
  const std::vector<float> gradients(8000, -1.f / 1280);
  for (int step = 0; step < 100; ++step) ASSERT_TRUE(table->Push(keys, gradients, 1).ok());
  double sum = 0;
  for (const auto& [key, row] : All(*table))
    for (const float x : row) sum += x;
  EXPECT_NEAR(sum / 8000, 1 + 100. / 1280, 0.002);
}

TEST(EmbeddingTable, AKeyThatComesTwiceIsUpdatedTwiceInAnyType) {
  for (const RowType type : {RowType::kFloat32, RowType::kFloat16, RowType::kBFloat16}) {
    EmbeddingTable::Options options = Capped(Eviction::kOldest, 0);
    options.type = type;
    const auto table = EmbeddingTable::Make(options);
    PushKeys(*table, {4, 5, 4, 4});
    EXPECT_THAT(All(*table).at(4), ElementsAre(3, 3));
    EXPECT_THAT(All(*table).at(5), ElementsAre(1, 1));
  }
}

TEST(EmbeddingTable, InitialisersAreReadAndRefused) {
  EXPECT_EQ(ParseInitializer(Json::parse(R"({"name": "normal", "scale": 2})"))->scale, 2);
  EXPECT_EQ(ParseInitializer(Json("zeros"))->kind, Initializer::Kind::kZeros);
  for (const char* text : {R"("glorot")", R"({"name": "zeros", "scale": 1})", "3"})
    EXPECT_EQ(ExitCodeOf(ParseInitializer(Json::parse(text)).status()), ExitCode::kConfiguration);
}

Rows All(const EmbeddingTable::Frozen& frozen, int64_t elements) {
  Rows rows;
  std::vector<uint64_t> keys(static_cast<size_t>(frozen.size()));
  std::vector<float> values(keys.size() * static_cast<size_t>(elements));
  // In pieces that do not end where shards do, and each element by itself.
  for (int64_t first = 0; first < frozen.size(); first += 7) {
    const int64_t count = std::min<int64_t>(7, frozen.size() - first);
    frozen.ReadKeys(first, std::span(keys).subspan(first, count));
    std::vector<float> column(static_cast<size_t>(count));
    for (int64_t e = 0; e < elements; ++e) {
      frozen.Read(first, count, e, 1, column.data());
      for (int64_t i = 0; i < count; ++i) values[(first + i) * elements + e] = column[i];
    }
  }
  for (size_t i = 0; i < keys.size(); ++i)
    rows[keys[i]].assign(values.begin() + static_cast<int64_t>(i) * elements,
                         values.begin() + static_cast<int64_t>(i + 1) * elements);
  return rows;
}

TEST(EmbeddingTable, WhatIsFrozenStaysWhileRowsChange) {
  const auto table = EmbeddingTable::Make({.width = 3, .rule = AdagradSpec{}, .shards = 4});
  std::vector<uint64_t> keys(100);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * 31;
  const std::vector<float> ones(300, 1.f);
  ASSERT_TRUE(table->Push(keys, ones, 0.5).ok());
  const Rows before = All(*table);
  const auto first = table->Freeze();
  ASSERT_TRUE(table->Push(std::span(keys).first(40), std::span(ones).first(120), 0.5).ok());
  const Rows between = All(*table);
  const auto second = table->Freeze();
  for (size_t i = 0; i < 50; ++i) keys[i] += 7;  // new rows
  ASSERT_TRUE(table->Push(keys, ones, 0.5).ok());
  ASSERT_TRUE(table->Restore(0, std::vector<float>(6, 9.f)).ok());
  EXPECT_EQ(All(*first, 6), before);
  EXPECT_EQ(All(*second, 6), between);
  EXPECT_NE(All(*table->Freeze(), 6), between);
  EXPECT_EQ(All(*table->Freeze(), 6), All(*table));
}

TEST(EmbeddingTable, IsReadAsFrozenWhileOthersPush) {
  const auto table = EmbeddingTable::Make({.width = 4, .rule = SgdSpec{}, .shards = 2});
  std::vector<uint64_t> keys(2000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  const std::vector<float> ones(8000, 1.f);
  ASSERT_TRUE(table->Push(keys, ones, 0.5).ok());
  std::atomic<bool> stop = false;
  std::thread pusher([&] {
    while (!stop) EXPECT_TRUE(table->Push(keys, ones, 0.001).ok());
  });
  for (int round = 0; round < 5; ++round) {
    const auto frozen = table->Freeze();
    const Rows once = All(*frozen, 4);
    EXPECT_EQ(once.size(), 2000u);
    EXPECT_EQ(All(*frozen, 4), once);
  }
  stop = true;
  pusher.join();
}

}  // namespace
}  // namespace muster::push_pull
