#include "common/rpc/server/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"

namespace muster::rpc {
namespace {

TEST(WorkerPool, TakesWhatItHasRoomForAndDoesAllOfIt) {
  std::atomic<int> done = 0;
  {
    absl::Notification began, go_on;
    WorkerPool pool(1, 2);
    ASSERT_TRUE(pool.Run([&] {
      began.Notify();
      go_on.WaitForNotification();
      ++done;
    }));
    began.WaitForNotification();
    EXPECT_TRUE(pool.Run([&] { ++done; })) << "only what waits is counted";
    EXPECT_TRUE(pool.Run([&] { ++done; }));
    EXPECT_FALSE(pool.Run([&] { ++done; }));
    go_on.Notify();
  }
  EXPECT_EQ(done, 3) << "what waited is done before the pool is gone";
}

TEST(WorkerPool, WhatIsDoneMakesRoom) {
  WorkerPool pool(1, 1);
  for (int i = 0; i < 100; ++i) {
    absl::Notification done;
    ASSERT_TRUE(pool.Run([&] { done.Notify(); })) << i;
    done.WaitForNotification();
  }
}

}  // namespace
}  // namespace muster::rpc
