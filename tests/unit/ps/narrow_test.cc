#include "common/push_pull/narrow.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace muster::push_pull {
namespace {

constexpr Compression kBoth[] = {Compression::kBFloat16, Compression::kFloat16};

std::vector<float> Widened(Compression from, const std::vector<uint16_t>& bits) {
  std::vector<float> values(bits.size());
  Widen(from, bits.data(), values);
  return values;
}
uint16_t Narrowed(Compression to, float value) {
  // More than one: the vectorised loop too.
  const std::vector<float> values(37, value);
  std::vector<uint16_t> bits(values.size());
  Narrow(to, values, bits.data());
  for (const uint16_t b : bits) EXPECT_EQ(b, bits[0]);
  return bits[0];
}

TEST(NarrowTest, WhatFitsComesBackAsItWas) {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const Compression c : kBoth) {
    const std::vector<float> values = Widened(c, all);
    std::vector<uint16_t> back(all.size());
    Narrow(c, values, back.data());
    for (size_t i = 0; i < all.size(); ++i) {
      if (!std::isnan(values[i])) {
        ASSERT_EQ(back[i], all[i]);
      } else {
        ASSERT_TRUE(std::isnan(Widened(c, {back[i]})[0]));
      }
    }
  }
}

TEST(NarrowTest, RoundsToTheNearestAndTiesToEven) {
  for (const Compression c : kBoth) {
    // Each pair of neighbours among the positive numbers, the middle and both sides of it.
    const uint16_t infinity = c == Compression::kBFloat16 ? 0x7f80 : 0x7c00;
    for (uint16_t low = 0; low + 1 < infinity; low += 7) {
      const std::vector<float> pair = Widened(c, {low, static_cast<uint16_t>(low + 1)});
      const double middle = (static_cast<double>(pair[0]) + pair[1]) / 2;
      const float exact = static_cast<float>(middle);
      if (exact != middle) continue;  // below what single precision has
      const uint16_t even = low % 2 == 0 ? low : low + 1;
      EXPECT_EQ(Narrowed(c, exact), even) << low;
      EXPECT_EQ(Narrowed(c, -exact), even | 0x8000) << low;
      EXPECT_EQ(Narrowed(c, std::nextafterf(exact, 0)), low);
      EXPECT_EQ(Narrowed(c, std::nextafterf(exact, HUGE_VALF)), low + 1);
    }
    EXPECT_EQ(Narrowed(c, std::numeric_limits<float>::infinity()), infinity);
  }
}

TEST(NarrowTest, WhatIsFiniteStaysSo) {
  for (const Compression c : kBoth) {
    const uint16_t infinity = c == Compression::kBFloat16 ? 0x7f80 : 0x7c00;
    const auto largest = static_cast<uint16_t>(infinity - 1);
    const float value = Widened(c, {largest})[0];
    for (const float x : {value, std::nextafterf(value, HUGE_VALF), 1.01f * value,
                          std::numeric_limits<float>::max()}) {
      if (std::isinf(x)) continue;  // bfloat16's largest is nearly single precision's
      EXPECT_EQ(Narrowed(c, x), largest) << x;
      EXPECT_EQ(Narrowed(c, -x), largest | 0x8000) << x;
    }
    EXPECT_EQ(Narrowed(c, -std::numeric_limits<float>::infinity()), infinity | 0x8000);
    EXPECT_TRUE(std::isnan(Widened(c, {Narrowed(c, std::nanf(""))})[0]));
  }
}

}  // namespace
}  // namespace muster::push_pull
