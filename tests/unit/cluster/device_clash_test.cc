#include "common/cluster/device_clash.h"

#include <gmock/gmock.h>

namespace muster {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Clash(const std::vector<MemberDevices>& members) {
  const absl::Status status = CheckDeviceClash(members);
  if (status.ok()) return "";
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration);
  return std::string(Message(status));
}

TEST(DeviceClash, AGpuThatTwoTasksHoldIsNamedWithBoth) {
  EXPECT_THAT(Clash({{"chief:0", "cuda", {"GPU-1"}, "580.65"},
                     {"worker:0", "cuda", {"GPU-2", "GPU-3"}, "580.65"},
                     {"worker:1", "cuda", {"GPU-4", "GPU-3"}, "580.65"}}),
              HasSubstr("worker 0 and worker 1 both hold GPU GPU-3"));
}

TEST(DeviceClash, AGpuIsSharedByTasksThatNcclTakesToBeOnDifferentHosts) {
  EXPECT_EQ(Clash({{"chief:0", "cuda", {"GPU-1"}, "580.65", "a"},
                   {"worker:0", "cuda", {"GPU-1"}, "580.65", "b"}}),
            "");
  EXPECT_THAT(Clash({{"chief:0", "cuda", {"GPU-1"}, "580.65", "a"},
                     {"worker:0", "cuda", {"GPU-1"}, "580.65", "a"}}),
              HasSubstr("chief 0 and worker 0 both hold GPU GPU-1"));
}

TEST(DeviceClash, MembersOnTheCpuAndOnGpusDoNotGoTogether) {
  EXPECT_THAT(Clash({{"chief:0", "cpu", {}, ""},
                     {"worker:0", "cuda", {"GPU-1"}, "580.65"},
                     {"worker:1", "cuda", {"GPU-2"}, "580.65"}}),
              AllOf(HasSubstr("worker 0 trains on CUDA devices (driver 580.65)"),
                    HasSubstr("chief 0 on the CPU (no NVIDIA driver)")));
}

TEST(DeviceClash, WhatGoesTogetherIsLeftAlone) {
  EXPECT_EQ(Clash({{"chief:0", "cuda", {"GPU-1"}, "1"}, {"worker:0", "cuda", {"GPU-2"}, "2"}}), "");
  EXPECT_EQ(Clash({{"chief:0", "cpu", {}, ""}, {"worker:0", "cpu", {}, "550"}}), "");
  // A task of another version, which does not report its devices.
  EXPECT_EQ(Clash({{"chief:0", "", {}, ""}, {"worker:0", "cuda", {"GPU-1"}, ""}}), "");
}

}  // namespace
}  // namespace muster
