#include "common/push_pull/embedding_table.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <thread>

namespace muster {
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

std::vector<float> PullOne(EmbeddingTable& table, uint64_t key, int64_t width) {
  std::vector<float> row(width);
  EXPECT_TRUE(table.Pull({&key, 1}, row).ok());
  return row;
}

TEST(EmbeddingTable, ARowIsAFunctionOfSeedAndKey) {
  const auto one = EmbeddingTable::Make({.width = 5});
  const auto other = EmbeddingTable::Make({.width = 5, .shards = 2});
  const std::vector<uint64_t> keys = {7, 0, ~0ull, 1ull << 40, 7};
  std::vector<float> first(25), second(25);
  ASSERT_TRUE(one->Pull(keys, first).ok());
  PullOne(*other, 99, 5);
  for (size_t i = keys.size(); i-- > 0;) {
    const std::vector<float> row = PullOne(*other, keys[i], 5);
    std::copy(row.begin(), row.end(), second.begin() + static_cast<int64_t>(i) * 5);
  }
  EXPECT_EQ(first, second);
  EXPECT_EQ(one->size(), 4);
  EXPECT_NE(PullOne(*one, 7, 5), PullOne(*one, 8, 5));
  EXPECT_NE(PullOne(*EmbeddingTable::Make({.width = 5, .seed = 1}), 7, 5), PullOne(*one, 7, 5));
}

TEST(EmbeddingTable, PeekTellsWhatPullWould) {
  const auto table = EmbeddingTable::Make({.width = 3, .initializer = {}, .rule = SgdSpec{}});
  const std::vector<uint64_t> keys = {5, 6, 5, ~0ull};
  std::vector<float> peeked(12), pulled(12);
  ASSERT_TRUE(table->Peek(keys, peeked).ok());
  EXPECT_EQ(table->size(), 0) << "nothing is made";
  ASSERT_TRUE(table->Pull(keys, pulled).ok());
  EXPECT_EQ(peeked, pulled);
  EXPECT_EQ(table->size(), 3);
  ASSERT_TRUE(table->Push(keys, std::vector<float>(12, 1.f), 0.5).ok());
  ASSERT_TRUE(table->Peek(keys, peeked).ok());
  EXPECT_FLOAT_EQ(peeked[0], pulled[0] - 2 * 0.5f);
  EXPECT_FLOAT_EQ(peeked[3], pulled[3] - 0.5f);
  EXPECT_THAT(std::string(table->Peek(keys, std::span(peeked).first(2)).message()),
              HasSubstr("have 12 elements, not 2"));
}

TEST(EmbeddingTable, InitialisersKeepTheirPromise) {
  using Kind = Initializer::Kind;
  const auto rows = [](Initializer how) {
    const auto table = EmbeddingTable::Make({.width = 100, .initializer = how});
    std::vector<float> all(100 * 100);
    std::vector<uint64_t> keys(100);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
    EXPECT_TRUE(table->Pull(keys, all).ok());
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

TEST(EmbeddingTable, UpdatesAreThoseOfTheDenseRule) {
  for (const char* text : {R"("sgd")", R"({"name": "sgd", "momentum": 0.9})", R"("adagrad")",
                           R"("adam")", R"({"name": "adam", "amsgrad": true})",
                           R"({"name": "rmsprop", "momentum": 0.5})", R"("ftrl")"}) {
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
    ASSERT_THAT(PullOne(*table, i << 20, 3), Each(static_cast<float>(i)));
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
  for (const absl::Status& status : {table->Pull(keys, seven), table->Push(keys, seven, 0.1)}) {
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration);
    EXPECT_THAT(std::string(Message(status)),
                HasSubstr("2 keys of width 4 have 8 elements, not 7"));
  }
  EXPECT_EQ(table->size(), 0);
  EXPECT_TRUE(table->Pull({}, {}).ok());
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
}  // namespace muster
