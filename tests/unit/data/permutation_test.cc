#include "common/data/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace muster::data {
namespace {

std::vector<int64_t> Order(int64_t size, uint64_t seed, uint64_t salt, int64_t epoch) {
  const Permutation permutation(size, seed, salt, epoch);
  std::vector<int64_t> order(size);
  for (int64_t i = 0; i < size; ++i) order[i] = permutation(i);
  return order;
}

// Sum of (observed - expected)^2 / expected, as a number of standard deviations from its mean.
double ChiSquareDeviation(const std::vector<int64_t>& counts) {
  double total = 0;
  for (int64_t count : counts) total += static_cast<double>(count);
  const double expected = total / static_cast<double>(counts.size());
  double sum = 0;
  for (int64_t count : counts) sum += (count - expected) * (count - expected) / expected;
  const double degrees = static_cast<double>(counts.size()) - 1;
  return (sum - degrees) / std::sqrt(2 * degrees);
}

TEST(PermutationTest, IsABijection) {
  for (int64_t size : {0,  1,  2,  3,  31,  32,  33,   34,   35,   36,    37,
                       48, 49, 50, 99, 100, 101, 1000, 4096, 4097, 60000, 99991}) {
    std::vector<int64_t> order = Order(size, 42, 0, 3);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(order[i], i) << size;
  }
}

TEST(PermutationTest, WorksForHugeSizes) {
  const int64_t size = INT64_MAX;
  const Permutation permutation(size, 1, 2, 3);
  for (int64_t i : {int64_t{0}, int64_t{1}, size / 2, size - 1}) {
    EXPECT_GE(permutation(i), 0);
    EXPECT_LT(permutation(i), size);
  }
}

TEST(PermutationTest, DependsOnSeedSaltAndEpoch) {
  for (int64_t size : {20, 1000}) {
    const auto order = Order(size, 7, 0, 0);
    EXPECT_EQ(order, Order(size, 7, 0, 0));
    EXPECT_NE(order, Order(size, 8, 0, 0));
    EXPECT_NE(order, Order(size, 7, 1, 0));
    EXPECT_NE(order, Order(size, 7, 0, 1));
    EXPECT_NE(Order(size, 7, 1, 0), Order(size, 7, 0, 1));
  }
}

TEST(PermutationTest, AllOrdersOfAFewAreEquallyLikely) {
  for (int64_t size : {2, 3, 4, 5}) {
    std::map<std::vector<int64_t>, int64_t> seen;
    for (int64_t epoch = 0; epoch < 60000; ++epoch) ++seen[Order(size, 5, 0, epoch)];
    int64_t factorial = 1;
    for (int64_t i = 2; i <= size; ++i) factorial *= i;
    ASSERT_EQ(static_cast<int64_t>(seen.size()), factorial);
    std::vector<int64_t> counts;
    for (const auto& [order, count] : seen) counts.push_back(count);
    EXPECT_LT(std::abs(ChiSquareDeviation(counts)), 4) << size;
  }
}

// Where each index lands over many epochs: all pairs (index, place), and where neighbours land
// relative to each other (which a weak round function shows first).
TEST(PermutationTest, PlacesAndDistancesAreUniform) {
  for (int64_t size : {33, 36, 50, 97}) {
    std::vector<int64_t> places(size * size), distances(size - 1);
    for (int64_t epoch = 0; epoch < 20000; ++epoch) {
      const auto order = Order(size, 11, 0, epoch);
      for (int64_t i = 0; i < size; ++i) ++places[i * size + order[i]];
      for (int64_t i = 0; i + 1 < size; i += 2) {
        ++distances[(order[i + 1] - order[i] + size) % size - 1];
      }
    }
    EXPECT_LT(std::abs(ChiSquareDeviation(places)), 4.5) << size;
    EXPECT_LT(std::abs(ChiSquareDeviation(distances)), 4.5) << size;
  }
}

// A whole epoch of the real size: blocks of neighbours spread evenly over the dataset, and about
// one fixed point.
TEST(PermutationTest, SpreadsAWholeEpoch) {
  const int64_t size = 60000;
  std::vector<int64_t> blocks(60 * 60);
  int64_t fixed = 0;
  for (int64_t epoch = 0; epoch < 50; ++epoch) {
    const auto order = Order(size, 3, 9, epoch);
    for (int64_t i = 0; i < size; ++i) {
      ++blocks[i / 1000 * 60 + order[i] / 1000];
      fixed += order[i] == i;
    }
  }
  EXPECT_LT(std::abs(ChiSquareDeviation(blocks)), 6);
  EXPECT_GT(fixed, 20);  // Poisson with mean 50
  EXPECT_LT(fixed, 90);
}

}  // namespace
}  // namespace muster::data
