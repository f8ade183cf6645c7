#include "common/optim/update_kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "tests/unit/optim/recurrences.h"

namespace muster {
namespace {

using recurrences::Case;
using recurrences::Cases;
using recurrences::Element;

RuleSpec RuleOf(const Case& rule) { return ParseOptimizer(Json::parse(rule.spec))->rule; }

// A parameter with its slots, at an odd place in memory.
struct Memory {
  Memory(const RuleSpec& rule, size_t size, uint64_t seed)
      : bytes(4, std::vector<float>(size + 1)) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < size; ++i) parameter()[i] = normal(random);
    const std::vector<std::string> slots = ShapedSlots(rule);
    count = slots.size();
    for (size_t s = 0; s < count; ++s)
      std::fill_n(slot(s), size, static_cast<float>(InitialSlotValue(rule, slots[s])));
  }
  float* parameter() { return bytes[0].data() + 1; }
  float* slot(size_t s) { return bytes[1 + s].data() + 1; }
  size_t size() const { return bytes[0].size() - 1; }
  UpdateRange Range(const std::vector<float>& gradient, size_t from, size_t to) {
    UpdateRange range{{parameter() + from, to - from}, {gradient.data() + from, to - from}};
    for (size_t s = 0; s < count; ++s) range.slots[s] = slot(s) + from;
    return range;
  }
  std::vector<std::vector<float>> bytes;
  size_t count = 0;
};

std::vector<float> Gradient(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> gradient(size);
  for (float& g : gradient) g = normal(random);
  return gradient;
}

class UpdateKernels : public ::testing::TestWithParam<size_t> {
 protected:
  const Case& rule() const { return Cases()[GetParam()]; }
};

TEST_P(UpdateKernels, TwentyUpdatesFollowTheTextbook) {
  const RuleSpec spec = RuleOf(rule());
  for (const size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{100}, size_t{3001}}) {
    Memory memory(spec, size, 3);
    std::vector<Element> elements(size);
    for (size_t i = 0; i < size; ++i) {
      elements[i].p = memory.parameter()[i];
      elements[i].a = rule().initial_a;
    }
    for (int step = 1; step <= 20; ++step) {
      const std::vector<float> gradient = Gradient(size, 100 + step);
      ApplyUpdate(spec, 0.05, step, memory.Range(gradient, 0, size));
      for (size_t i = 0; i < size; ++i) rule().step(elements[i], gradient[i], 0.05);
    }
    for (size_t i = 0; i < size; ++i)
      ASSERT_NEAR(memory.parameter()[i], elements[i].p, 2e-5 * (1 + std::abs(elements[i].p)))
          << "element " << i << " of " << size;
  }
}

TEST_P(UpdateKernels, AreTheSameOnEveryProcessorToTheLastBit) {
  const RuleSpec spec = RuleOf(rule());
  const size_t size = 5003;
  std::vector<Memory> results;
  for (const UpdateKernel kernel : AvailableKernels()) {
    Memory& memory = results.emplace_back(spec, size, 5);
    for (int step = 1; step <= 5; ++step) {
      const std::vector<float> gradient = Gradient(size, step);
      kernel(spec, 0.1, step, memory.Range(gradient, 0, size));
    }
    EXPECT_EQ(memory.bytes, results.front().bytes);
  }
}

TEST_P(UpdateKernels, PartsAddUpToTheWhole) {
  const RuleSpec spec = RuleOf(rule());
  const size_t size = 1000;
  Memory whole(spec, size, 9), parts(spec, size, 9);
  for (int step = 1; step <= 3; ++step) {
    const std::vector<float> gradient = Gradient(size, step);
    ApplyUpdate(spec, 0.1, step, whole.Range(gradient, 0, size));
    for (const auto& [from, to] : {std::pair{0, 13}, {13, 14}, {14, 500}, {500, 1000}})
      ApplyUpdate(spec, 0.1, step, parts.Range(gradient, from, to));
  }
  EXPECT_EQ(whole.bytes, parts.bytes);
}

TEST(RowwiseAdagrad, IsTheSameOnEveryProcessorToTheLastBit) {
  const RuleSpec spec = ParseOptimizer(Json("rowwise_adagrad"))->rule;
  for (const size_t width : {size_t{1}, size_t{7}, size_t{64}, size_t{130}}) {
    std::vector<std::pair<std::vector<float>, float>> results;
    for (const UpdateKernel kernel : AvailableKernels()) {
      auto& [parameter, sum] = results.emplace_back(Gradient(width, 9), 0.1f);
      for (int step = 1; step <= 5; ++step) {
        const std::vector<float> gradient = Gradient(width, step);
        kernel(spec, 0.1, step, {parameter, gradient, {&sum}});
      }
      EXPECT_EQ(results.back(), results.front()) << width;
    }
    EXPECT_GT(results.front().second, 0.1f);
  }
}

// A warm-up begins at 0, by which FTRL divides.
TEST(FtrlKernel, LeavesRangesAndRowsAloneWhereTheRateIsZero) {
  const RuleSpec spec = ParseOptimizer(Json("ftrl"))->rule;
  const size_t size = 37;
  for (const double rate : {0.0, 1e-300, 1e-40}) {
    for (const UpdateKernel kernel : AvailableKernels()) {
      Memory memory(spec, size, 3);
      const auto before = memory.bytes;
      const std::vector<float> gradient = Gradient(size, 1);
      kernel(spec, rate, 1, memory.Range(gradient, 0, size));
      EXPECT_EQ(memory.bytes, before);
    }
    std::vector<float> row = {2, 0.1f, 0};  // parameter, accumulator, linear
    float* const rows[] = {row.data()};
    const float gradient = 5;
    ApplyRowUpdates(spec, rate, 1, {rows, &gradient, 1});
    EXPECT_EQ(row, (std::vector<float>{2, 0.1f, 0}));
  }
}

TEST(ApplyDifference, TakesItsWeightAndNeverMoreThanThatOfWhatIsThere) {
  std::vector<float> values = {1, 1, 0, 0.01f, 8};
  const std::vector<float> difference = {0.5f, -2, -4, 1, 0};
  ApplyDifference(0.25, values, difference);
  EXPECT_FLOAT_EQ(values[0], 0.875f);
  EXPECT_FLOAT_EQ(values[1], 1.5f);
  EXPECT_FLOAT_EQ(values[2], 1);
  EXPECT_FLOAT_EQ(values[3], 0.0075f);
  EXPECT_FLOAT_EQ(values[4], 8);
}

TEST(AllFinite, FindsWhatIsNotWhereverItIs) {
  const float largest = std::numeric_limits<float>::max();
  for (const size_t size : {size_t{1}, size_t{7}, size_t{64}, size_t{131}}) {
    std::vector<float> values(size, -largest);
    EXPECT_TRUE(AllFinite(values));
    for (size_t i = 0; i < size; ++i)
      for (const float odd : {HUGE_VALF, -HUGE_VALF, std::nanf(""), -std::nanf("")}) {
        values[i] = odd;
        EXPECT_FALSE(AllFinite(values)) << odd << " at " << i << " of " << size;
        values[i] = largest;
      }
  }
  EXPECT_TRUE(AllFinite({}));
}

TEST(CopyPastCaches, CopiesAllAndNothingElseWhereverItLies) {
  for (size_t offset = 0; offset < 17; ++offset)
    for (const size_t size : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{40}}) {
      std::vector<float> from(size + 1), to(80, -1);
      std::iota(from.begin(), from.end(), 0.f);
      CopyPastCaches(std::span<const float>(from).subspan(1), to.data() + offset);
      for (size_t i = 0; i < to.size(); ++i) {
        const bool in = i >= offset && i < offset + size;
        EXPECT_EQ(to[i], in ? from[1 + i - offset] : -1) << size << " at " << offset << ": " << i;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Rules, UpdateKernels, ::testing::Range(size_t{0}, Cases().size()),
                         [](const auto& info) { return Cases()[info.param].name; });

}  // namespace
}  // namespace muster
