#include "common/base/process/memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace muster {
namespace {

class AvailableMemoryTest : public ::testing::Test {
 protected:
  AvailableMemoryTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "muster-memory-XXXXXX");
    root_ = mkdtemp(pattern.data());
    Put("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    5000 kB\n");
  }
  ~AvailableMemoryTest() override { std::filesystem::remove_all(root_); }
  void Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  uint64_t kilobytes() const { return AvailableMemory(root_) / 1024; }
  std::string root_;
};

TEST_F(AvailableMemoryTest, OfAHostWithoutGroups) { EXPECT_EQ(kilobytes(), 5000u); }

TEST_F(AvailableMemoryTest, TheTightestGroupCounts) {
  Put("/proc/self/cgroup", "0::/job/task\n");
  Put("/sys/fs/cgroup/job/task/memory.max", "max\n");
  EXPECT_EQ(kilobytes(), 5000u);
  Put("/sys/fs/cgroup/job/memory.max", "4096000\n");
  Put("/sys/fs/cgroup/job/memory.current", "3072000\n");
  EXPECT_EQ(kilobytes(), 1000u);
  Put("/sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 1024000\n");
  EXPECT_EQ(kilobytes(), 2000u) << "what only caches files can be had";
  Put("/sys/fs/cgroup/job/task/memory.max", "1024000\n");
  Put("/sys/fs/cgroup/job/task/memory.current", "2048000\n");
  EXPECT_EQ(kilobytes(), 0u) << "more is used than is allowed by now";
  // In a container its own group is the root.
  Put("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(kilobytes(), 5000u);
  Put("/sys/fs/cgroup/memory.max", "1024000\n");
  EXPECT_EQ(kilobytes(), 1000u);
}

TEST_F(AvailableMemoryTest, OfVersionOne) {
  Put("/proc/self/cgroup", "5:cpu,memory:/job\n4:pids:/other\n");
  Put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2048000\n");
  Put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1024000\n");
  EXPECT_EQ(kilobytes(), 1000u);
}

TEST_F(AvailableMemoryTest, WhatCannotBeReadLimitsNothing) {
  std::filesystem::remove(root_ + "/proc/meminfo");
  EXPECT_GT(kilobytes(), uint64_t{1} << 50);
  EXPECT_GT(AvailableMemory(), 0u);
}

}  // namespace
}  // namespace muster
