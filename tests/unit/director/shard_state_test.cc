#include "chief/shard_state.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "chief/work_table.h"
#include "common/data/pipeline.h"

namespace muster {
namespace {

TEST(ShareOf, IsTheReplicasSliceOfSynchronousTraining) {
  for (int64_t size = 0; size < 40; ++size)
    for (int shares = 1; shares < 6; ++shares)
      for (int i = 0; i < shares; ++i) {
        const auto [begin, end] = ShareOf(100, 100 + size, i, shares);
        const data::Slice slice = data::ReplicaSlice(100, 100 + size, i, shares);
        EXPECT_EQ(begin, slice.begin);
        EXPECT_EQ(end, slice.end);
      }
}

}  // namespace
}  // namespace muster
