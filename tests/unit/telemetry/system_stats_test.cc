#include "common/telemetry/system_stats.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <ctime>

#include "common/base/clock.h"

namespace muster {
namespace {

using ::testing::Pair;

TEST(SystemStatsTest, ReadsCpuTimeBehindAnyName) {
  const std::string after = " S 1 1 1 0 -1 4194304 1 2 3 4 250 50 0 0 20 0 1 0 1 1 1";
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  EXPECT_EQ(CpuSecondsOf("7 (muster-worker)" + after), 300 / ticks);
  EXPECT_EQ(CpuSecondsOf("7 (a) b (c d)" + after), 300 / ticks);
  EXPECT_EQ(CpuSecondsOf("7 (a) S 1 2"), std::nullopt);
  EXPECT_EQ(CpuSecondsOf(""), std::nullopt);
  EXPECT_EQ(CpuSecondsOf("7 (a) S 1 1 1 0 -1 4194304 1 2 3 4 x 50 0"), std::nullopt);
}

TEST(SystemStatsTest, ReadsResidentMemory) {
  EXPECT_EQ(RssBytesOf("1000 20 3 4 0 5 0\n"), 20 * sysconf(_SC_PAGESIZE));
  EXPECT_EQ(RssBytesOf("1000"), std::nullopt);
  EXPECT_EQ(RssBytesOf("a b"), std::nullopt);
}

TEST(SystemStatsTest, AddsInterfacesWithoutLoopback) {
  EXPECT_THAT(
      NetworkBytesOf(
          "Inter-|   Receive                                                |  Transmit\n"
          " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n"
          "    lo:  999       1    0    0    0     0          0         0      999       1    0    "
          "0\n"
          "  eth0: 100       1    0    0    0     0          0         0       7       1    0    "
          "0\n"
          " ib0.1:20        1    0    0    0     0          0         0       3       1    0    0\n"
          "broken: 5\n"),
      Pair(10, 120));
  EXPECT_THAT(NetworkBytesOf(""), Pair(0, 0));
}

TEST(SystemStatsTest, SamplesThisProcess) {
  SystemSampler sampler;
  const MonotonicTime start = Clock::now();
  sampler.Sample(start);
  volatile double sink = 0;
  const std::clock_t begin = std::clock();
  while (std::clock() - begin < CLOCKS_PER_SEC / 5) sink = sink + 1;
  const SystemStats stats = sampler.Sample();
  EXPECT_GT(stats.cpu_seconds, 0);
  EXPECT_GT(stats.cpu_cores, 0.1 / Seconds(Clock::now() - start)) << "less than half of it";
  EXPECT_GT(stats.rss_bytes, 1 << 20);
  EXPECT_TRUE(stats.gpus.empty());
}

TEST(SystemStatsTest, ReadsTheGpusOfTheseUuids) {
  const auto reader = OpenNvml({"GPU-1", "GPU-2", "GPU-9"}, MUSTER_NVML_DOUBLE);
  ASSERT_NE(reader, nullptr);
  const std::vector<proto::GpuStats> gpus = reader->Read();
  ASSERT_EQ(gpus.size(), 2);
  EXPECT_EQ(gpus[0].index(), 1);
  EXPECT_EQ(gpus[0].uuid(), "GPU-1");
  EXPECT_DOUBLE_EQ(gpus[0].utilization(), 0.75);
  EXPECT_DOUBLE_EQ(gpus[0].memory_access(), 0.4);
  EXPECT_EQ(gpus[0].memory_used_bytes(), int64_t{1} << 30);
  EXPECT_EQ(gpus[0].memory_total_bytes(), int64_t{80} << 30);
  EXPECT_EQ(gpus[1].index(), 2);
  EXPECT_LT(gpus[1].utilization(), 0);
  EXPECT_LT(gpus[1].memory_access(), 0);
  EXPECT_LT(gpus[1].memory_used_bytes(), 0);
  EXPECT_LT(gpus[1].memory_total_bytes(), 0);
}

TEST(SystemStatsTest, WithoutNvmlOrItsGpusThereIsNoReader) {
  EXPECT_EQ(OpenNvml({"GPU-1"}, "libmuster-no-such-library.so"), nullptr);
  EXPECT_EQ(OpenNvml({"GPU-7"}, MUSTER_NVML_DOUBLE), nullptr);
  EXPECT_EQ(OpenNvml({"GPU-1"}, "libc.so.6"), nullptr);
}

}  // namespace
}  // namespace muster
