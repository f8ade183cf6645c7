#include "common/base/json/lenient_fields.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(LenientFields, AMissingFieldOrOneOfAnotherTypeIsEmpty) {
  const Json json = {{"a", {{"b", 2.5}, {"text", "x"}}}, {"list", {1, 2}}, {"large", 1e300}};
  EXPECT_EQ(FieldAt(json, {"a", "b"}), 2.5);
  EXPECT_TRUE(FieldAt(json, {"a", "c"}).is_null());
  EXPECT_TRUE(FieldAt(json, {"list", "b"}).is_null());
  EXPECT_TRUE(FieldAt(Json(), {"a"}).is_null());
  EXPECT_EQ(NumberAt(json, {"a", "b"}), 2.5);
  EXPECT_EQ(NumberAt(json, {"a", "text"}), std::nullopt);
  EXPECT_EQ(IntegerAt(json, {"a", "b"}), 2);
  EXPECT_EQ(IntegerAt(json, {"large"}), std::nullopt);
  EXPECT_EQ(TextAt(json, {"a", "text"}), "x");
  EXPECT_EQ(TextAt(json, {"a", "b"}), "");
}

}  // namespace
}  // namespace muster
