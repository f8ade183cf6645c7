#include "common/base/short_list.h"

#include <gtest/gtest.h>

#include <vector>

namespace muster {
namespace {

TEST(ShortListTest, ShowsTheFirstItemsAndCountsTheOthers) {
  const std::vector<std::string> items = {"a", "b", "c"};
  EXPECT_EQ(ShortList({}, 2), "");
  EXPECT_EQ(ShortList(items, 0), " and 3 more");
  EXPECT_EQ(ShortList(items, 2), "a, b and 1 more");
  EXPECT_EQ(ShortList(items, 3), "a, b, c");
  EXPECT_EQ(ShortList(items, 4), "a, b, c");
}

}  // namespace
}  // namespace muster
