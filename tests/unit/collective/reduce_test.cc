#include "common/collective/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace muster::collective {
namespace {

uint16_t Reduced(uint16_t a, uint16_t b, DataType type, Reduction reduction = {}) {
  // Many elements, so that the vector code is what is tested.
  std::vector<uint16_t> x(100, a), y(100, b), out(100);
  void* to = out.data();
  const void* sources[] = {x.data(), y.data()};
  ReduceElements({&to, 1}, sources, 100, type, reduction);
  for (const uint16_t o : out) EXPECT_EQ(o, out[0]);
  return out[0];
}

TEST(ReduceElements, EveryHalfSurvivesTheWayThroughFloat) {
  std::vector<uint16_t> all(65536), zero(65536, 0x8000), out(65536);  // -0 changes nothing
  for (int i = 0; i < 65536; ++i) all[i] = static_cast<uint16_t>(i);
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    void* to = out.data();
    const void* sources[] = {all.data(), zero.data()};
    ReduceElements({&to, 1}, sources, 65536, type, {});
    const int infinity = type == DataType::kFloat16 ? 0x7c00 : 0x7f80;
    for (int i = 0; i < 65536; ++i) {
      if ((i & 0x7fff) > infinity) {
        EXPECT_GT(out[i] & 0x7fff, infinity) << "NaN stays NaN";
      } else {
        EXPECT_EQ(out[i], i);
      }
    }
  }
}

TEST(ReduceElements, HalvesAreRoundedToNearestEven) {
  const uint16_t one = 0x3c00, ulp = 0x1400;  // 1, 2^-10: the spacing above 1
  EXPECT_EQ(Reduced(one, ulp, DataType::kFloat16), 0x3c01);
  EXPECT_EQ(Reduced(one, 0x1000, DataType::kFloat16), 0x3c00) << "half way, down to even";
  EXPECT_EQ(Reduced(0x3c01, 0x1000, DataType::kFloat16), 0x3c02) << "half way, up to even";
  EXPECT_EQ(Reduced(0x7bff, 0x7bff, DataType::kFloat16), 0x7c00) << "overflow";
  EXPECT_EQ(Reduced(0x0001, 0x0001, DataType::kFloat16), 0x0002) << "subnormal";
  EXPECT_EQ(Reduced(0x03ff, 0x0001, DataType::kFloat16), 0x0400) << "subnormal to normal";
  EXPECT_EQ(Reduced(0x3f80, 0x3b80, DataType::kBFloat16), 0x3f80) << "half way, down to even";
  EXPECT_EQ(Reduced(0x3f81, 0x3b80, DataType::kBFloat16), 0x3f82) << "half way, up to even";
}

TEST(ReduceElements, TheMaximumAndTheMinimumWithNaNAreNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [first, op] :
       {std::pair(true, ReduceOp::kMax), std::pair(false, ReduceOp::kMax),
        std::pair(true, ReduceOp::kMin), std::pair(false, ReduceOp::kMin)}) {
    std::vector<float> x(50, first ? nan : 1.f), y(50, first ? 1.f : nan), out(50);
    void* to = out.data();
    const void* sources[] = {x.data(), y.data()};
    ReduceElements({&to, 1}, sources, 50, DataType::kFloat32, {.op = op});
    for (const float o : out) EXPECT_TRUE(std::isnan(o));
  }
}

TEST(ReduceElements, IntegersWrapAndTruncateTowardsZero) {
  std::vector<int64_t> x(9, std::numeric_limits<int64_t>::max()), y(9, 1), z(9, -8), w(9, 1);
  void* to = x.data();
  const void* sources[] = {x.data(), y.data()};
  ReduceElements({&to, 1}, sources, 9, DataType::kInt64, {});
  EXPECT_EQ(x[8], std::numeric_limits<int64_t>::min());
  to = z.data();
  const void* others[] = {z.data(), w.data()};
  ReduceElements({&to, 1}, others, 9, DataType::kInt64, {.divisor = 2});
  EXPECT_EQ(z[8], -3);
}

TEST(ReduceElements, WritesEveryOutInTheFixedOrder) {
  std::vector<std::vector<float>> in(5, std::vector<float>(5000)), out(5, std::vector<float>(5000));
  std::vector<const void*> sources;
  std::vector<void*> outs;
  for (int r = 0; r < 5; ++r) {
    for (int i = 0; i < 5000; ++i) in[r][i] = std::sin(static_cast<float>(i * (r + 1))) * 1e3f;
    sources.push_back(in[r].data());
    outs.push_back(out[r].data());
  }
  ReduceElements(outs, sources, 5000, DataType::kFloat32, {.divisor = 5});
  for (int i = 0; i < 5000; ++i) {
    float sum = in[0][i];
    for (int r = 1; r < 5; ++r) sum += in[r][i];
    for (int r = 0; r < 5; ++r) ASSERT_EQ(out[r][i], sum / 5);
  }
}

}  // namespace
}  // namespace muster::collective
