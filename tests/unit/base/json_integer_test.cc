#include "common/base/json/json_integer.h"

#include <gtest/gtest.h>

#include <limits>

namespace muster {
namespace {

template <typename T>
T As(const Json& json) {
  return JsonInteger(json);
}

TEST(JsonInteger, IsAnyIntegralType) {
  EXPECT_EQ(As<int64_t>(-5), -5);
  EXPECT_EQ(As<uint64_t>(std::numeric_limits<uint64_t>::max()),
            std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(As<int>(5.0), 5);
  EXPECT_EQ(JsonIntegerOr(Json{{"a", 1}}, "a", 2), 1);
  EXPECT_EQ(JsonIntegerOr(Json{{"a", 1}}, "b", 2), 2);
}

TEST(JsonInteger, RefusesWhatDoesNotFit) {
  EXPECT_THROW(As<uint64_t>(-5), Json::exception);
  EXPECT_THROW(As<int>(int64_t{1} << 31), Json::exception);
  EXPECT_THROW(As<int64_t>(std::numeric_limits<uint64_t>::max()), Json::exception);
  // Integers that fit in no type are read as fractions.
  for (const char* text :
       {"42949672974294967297", "1e300", "-1e300", "0.5", "\"5\"", "null", "true"})
    EXPECT_THROW(As<int64_t>(Json::parse(text)), Json::exception) << text;
}

TEST(JsonInteger, ADocumentOfIntegersAlone) {
  EXPECT_TRUE(HoldsInt64(Json::parse(R"({"a": [1, [-2, "x"]], "b": null})")));
  EXPECT_FALSE(HoldsInt64(Json::parse(R"({"a": [1, [-2, 0.5]]})")));
  EXPECT_FALSE(HoldsInt64(Json::parse("[18446744073709551615]")));
}

}  // namespace
}  // namespace muster
