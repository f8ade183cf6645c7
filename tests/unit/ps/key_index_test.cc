#include "common/push_pull/rows/key_index.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

namespace muster::push_pull {
namespace {

using ::testing::ElementsAre;

TEST(KeyIndex, NumbersKeysAsTheyCome) {
  KeyIndex index;
  std::vector<uint32_t> numbers;
  index.Add(std::vector<uint64_t>{7, ~0ull, 7, 0}, &numbers);
  EXPECT_THAT(numbers, ElementsAre(0, 1, 0, 2));
  index.Add(std::vector<uint64_t>{0, 9}, &numbers);
  EXPECT_THAT(numbers, ElementsAre(2, 3));
  EXPECT_THAT(index.keys(), ElementsAre(7, ~0ull, 0, 9));
  index.Clear();
  EXPECT_TRUE(index.keys().empty());
  index.Add(std::vector<uint64_t>{9, 7}, &numbers);
  EXPECT_THAT(numbers, ElementsAre(0, 1));
  index.Add({}, &numbers);
  EXPECT_TRUE(numbers.empty());
}

TEST(KeyIndex, GrowsAndIsEmptiedOverAndOver) {
  std::mt19937_64 random(1);
  KeyIndex index;
  for (int round = 0; round < 20; ++round) {
    std::map<uint64_t, uint32_t> expected;
    for (int batch = 0; batch < 3; ++batch) {
      std::vector<uint64_t> keys(1000);
      for (uint64_t& key : keys) key = random() % 2000;
      std::vector<uint32_t> numbers;
      index.Add(keys, &numbers);
      for (size_t i = 0; i < keys.size(); ++i) {
        const auto [found, added] =
            expected.emplace(keys[i], static_cast<uint32_t>(expected.size()));
        ASSERT_EQ(numbers[i], found->second);
        ASSERT_EQ(index.keys()[numbers[i]], keys[i]);
      }
    }
    ASSERT_EQ(index.keys().size(), expected.size());
    index.Clear();
  }
}

TEST(KeySums, AddUpByKey) {
  KeySums sums(2);
  sums.Add(std::vector<uint64_t>{3, 4, 3}, std::vector<float>{1, 2, 3, 4, 5, 6}.data());
  sums.Add(std::vector<uint64_t>{4}, std::vector<float>{10, 20}.data());
  sums.Add({}, nullptr);
  EXPECT_THAT(sums.keys(), ElementsAre(3, 4));
  EXPECT_THAT(sums.sums(), ElementsAre(6, 8, 13, 24));
  sums.Clear();
  sums.Add(std::vector<uint64_t>{4}, std::vector<float>{1, 1}.data());
  EXPECT_THAT(sums.sums(), ElementsAre(1, 1));
}

}  // namespace
}  // namespace muster::push_pull
