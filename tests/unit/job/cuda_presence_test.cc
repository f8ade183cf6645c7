#include "common/job/cuda_presence.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "common/job/job.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::HasSubstr;

CudaPresence DriverWithoutDevices() {
  CudaPresence presence;
  presence.driver = true;
  presence.driver_version = "550.54.15";
  return presence;
}

TEST(CudaPresence, ADriverThatIsTooOldIsNoReasonToTrainOnTheCpu) {
  const absl::Status status = CheckFallback(DriverWithoutDevices());
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(status)),
              AllOf(HasSubstr("NVIDIA driver 550.54.15"), HasSubstr("580 or newer")));
}

TEST(CudaPresence, NorIsALibraryThatCannotBeLoaded) {
  CudaPresence presence = DriverWithoutDevices();
  presence.driver_version.clear();
  presence.load_error = "libcudart.so.13: cannot open shared object file";
  const absl::Status status = CheckFallback(presence);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("libcudart.so.13: cannot open"));
}

TEST(CudaPresence, HiddenGpusAndHostsWithoutADriverTrainOnTheCpu) {
  CudaPresence presence = DriverWithoutDevices();
  for (const char* hidden : {"", " ", "-1", "none", "NoDevFiles"}) {
    presence.visible = hidden;
    EXPECT_TRUE(CheckFallback(presence).ok()) << hidden;
  }
  for (const char* shown : {"0", "1,2", "GPU-8932f937", "MIG-8932f937"}) {
    presence.visible = shown;
    EXPECT_FALSE(CheckFallback(presence).ok()) << shown;
    CudaPresence used = presence;
    used.devices = 1;
    EXPECT_TRUE(CheckFallback(used).ok()) << shown;
  }
  presence.driver = false;
  EXPECT_TRUE(CheckFallback(presence).ok());
}

TEST(CudaPresence, ReadsTheDriversVersion) {
  EXPECT_EQ(DriverVersion("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 "
                          "22:23:56 UTC 2024\nGCC version:  gcc version 12.3.0\n"),
            "550.54.15");
  EXPECT_EQ(DriverVersion("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  "
                          "Release Build  (root@x)\n"),
            "580.65.06");
  EXPECT_EQ(DriverVersion(""), "");
}

TEST(CudaPresence, CudaHasMoreTimeToFormUnlessTheJobSaysHowMuch) {
  const Duration usual = Timeouts().formation;
  EXPECT_EQ(FormationTimeout(usual, false), usual);
  EXPECT_EQ(FormationTimeout(usual, true), std::chrono::seconds(120));
  EXPECT_EQ(FormationTimeout(std::chrono::seconds(7), true), std::chrono::seconds(7));
  EXPECT_TRUE(MayUseCuda("cuda:0,1"));
  EXPECT_FALSE(MayUseCuda("cpu:2"));
}

TEST(CudaPresence, NcclTakesTheJobsInterfaceUnlessItHasOne) {
  unsetenv("NCCL_SOCKET_IFNAME");
  UseInterface("");
  EXPECT_EQ(std::getenv("NCCL_SOCKET_IFNAME"), nullptr);
  UseInterface("eth7");
  EXPECT_STREQ(std::getenv("NCCL_SOCKET_IFNAME"), "=eth7");
  UseInterface("eth8");
  EXPECT_STREQ(std::getenv("NCCL_SOCKET_IFNAME"), "=eth7");
  unsetenv("NCCL_SOCKET_IFNAME");
}

}  // namespace
}  // namespace muster
