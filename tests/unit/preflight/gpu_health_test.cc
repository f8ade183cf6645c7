#include "deploy/preflight/gpu_health.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "deploy/launcher/processes/child_output.h"

namespace muster::preflight {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Returns the findings for a host with these GPUs. The fake library reads the variable when it is
// loaded.
std::vector<std::string> Said(const char* gpus, const GpuChoice& choice = {}) {
  const auto text = launcher::OutputOfChild(
      [gpus, &choice] {
        setenv("FAKE_GPU_HEALTH", gpus, 1);
        std::string lines;
        for (const std::string& line :
             Lines(JudgeGpus(ReadGpuHealthHere(FAKE_NVML, "libno-nccl.so"), choice)))
          lines += line + '\n';
        return lines;
      },
      std::chrono::seconds(20));
  EXPECT_TRUE(text.ok()) << text.status();
  std::vector<std::string> lines;
  std::istringstream stream(text.value_or(""));
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(GpuHealthTest, WellOnesAreOneLine) {
  EXPECT_THAT(Said("ok,links=4/0 ok,links=4/0"),
              ElementsAre("ok      GPU health  2 GPUs (NVIDIA Fake), driver 580.65.06, 8 NVLinks "
                          "up: no errors"));
  EXPECT_THAT(Said("old"), ElementsAre(HasSubstr("1 GPU (NVIDIA Fake)")));
}

TEST(GpuHealthTest, MemoryErrorsFail) {
  EXPECT_THAT(Said("ok ecc=3"), ElementsAre(AllOf(HasSubstr("FAILED  GPU 1  3 memory errors"),
                                                  HasSubstr("nvidia-smi --gpu-reset"))));
  EXPECT_THAT(Said("failed"), ElementsAre(HasSubstr("FAILED  GPU 0  its memory has defects")));
  EXPECT_THAT(Said("pending"), ElementsAre(HasSubstr("warn    GPU 0  a part of its memory")));
}

TEST(GpuHealthTest, AClockThatIsHeldDownIsAWarningWithTheCause) {
  EXPECT_THAT(Said("reasons=72"),  // Hardware slowdown, because it is hot.
              ElementsAre(AllOf(HasSubstr("warn    GPU 0  its clock is throttled"),
                                HasSubstr("it is hot (hardware thermal slowdown), 91 degrees"))));
  EXPECT_THAT(Said("reasons=128"), ElementsAre(HasSubstr("power brake")));
  EXPECT_THAT(Said("reasons=7"), ElementsAre(HasSubstr("no errors"))) << "idle, power limit";
}

TEST(GpuHealthTest, SomeLinksDownAreAWarning) {
  EXPECT_THAT(Said("links=4/2"), ElementsAre(HasSubstr("2 of 6 NVLinks are down")));
  EXPECT_THAT(Said("links=0/6"), ElementsAre(HasSubstr("no errors"))) << "without a bridge";
}

TEST(GpuHealthTest, OnesThatTheJobDoesNotUseAreWarnings) {
  const auto unused =
      ElementsAre(HasSubstr("ok      GPU health  1 of 3 GPUs (NVIDIA Fake), driver 580.65.06, 4 "),
                  HasSubstr("warn    GPU 0       not used by this job: 3 memory errors"),
                  HasSubstr("warn    GPU 2       not used by this job: its memory has defects"));
  const char* gpus = "ecc=3,links=2/0 ok,links=4/0 failed";
  EXPECT_THAT(Said(gpus, {.visible = "1"}), unused);
  EXPECT_THAT(Said(gpus, {.visible = "GPU-1"}), unused);
  EXPECT_THAT(Said(gpus, {.devices = "cuda:1"}), unused);
  EXPECT_THAT(Said(gpus, {.devices = "cuda:1", .visible = "2,1,0"}), unused);
  EXPECT_THAT(Said(gpus, {.visible = ""}),
              ElementsAre(HasSubstr("0 of 3 GPUs, driver"), HasSubstr("warn    GPU 0"),
                          HasSubstr("warn    GPU 2")));
  EXPECT_THAT(Said("ok reasons=128", {.visible = "0"}),
              ElementsAre(HasSubstr("ok "), HasSubstr("not used by this job: its clock")));
}

TEST(GpuHealthTest, OnesThatTheJobUsesFailAmongOthers) {
  const char* gpus = "ecc=3 ok failed";
  const auto second = ElementsAre(HasSubstr("FAILED  GPU 2  its memory"),
                                  HasSubstr("warn    GPU 0  not used by this job"));
  EXPECT_THAT(Said(gpus, {.visible = "1,2"}), second);
  EXPECT_THAT(Said(gpus, {.devices = "cuda:1,2"}), second);
  EXPECT_THAT(Said(gpus, {.devices = "cuda:0", .visible = "GPU-2,GPU-1"}), second);
  EXPECT_THAT(Said(gpus, {.devices = "cuda"}),
              ElementsAre(HasSubstr("FAILED  GPU 0"), HasSubstr("FAILED  GPU 2")));
}

TEST(GpuHealthTest, AnInstanceIsAsWellAsItsGpu) {
  const char* gpus = "ok,mig=2 ecc=3,mig=2 ok";
  EXPECT_THAT(Said(gpus), ElementsAre(HasSubstr("FAILED  GPU 1")));
  EXPECT_THAT(Said(gpus, {.visible = "MIG-01"}),
              ElementsAre(HasSubstr("1 of 3 GPUs"), HasSubstr("warn    GPU 1")));
  for (const char* bad : {"MIG-10", "MIG-GPU-1/7/0"})
    EXPECT_THAT(Said(gpus, {.visible = bad}), ElementsAre(HasSubstr("FAILED  GPU 1"))) << bad;
  EXPECT_THAT(Said("ok ecc=3,mig=0 ok", {.devices = "cuda:0,1"}),
              ElementsAre(HasSubstr("2 of 3 GPUs"), HasSubstr("warn    GPU 1")))
      << "its instances are those of other containers";
}

TEST(GpuHealthTest, ALostOneFailsOnlyWhereItIsUsed) {
  EXPECT_THAT(Said("ok lost"),
              ElementsAre(HasSubstr("FAILED  GPU 1  the driver cannot use it: GPU is lost")));
  for (const GpuChoice& choice : {GpuChoice{.visible = "0"}, GpuChoice{.devices = "cuda:0"}})
    EXPECT_THAT(
        Said("ok lost", choice),
        ElementsAre(HasSubstr("ok "), HasSubstr("not used by this job: the driver cannot")));
  EXPECT_THAT(Said("denied ecc=3 ok", {.visible = "1"}),
              ElementsAre(HasSubstr("1 of 2 GPUs"), HasSubstr("warn    GPU 0")))
      << "one of another container has no number";
}

TEST(GpuHealthTest, AListOfVisibleGpusThatDoNotExistFails) {
  EXPECT_THAT(Said("ok ok", {.visible = "0,5"}),
              ElementsAre(AllOf(HasSubstr("FAILED  GPU health  CUDA_VISIBLE_DEVICES is \"0,5\""),
                                HasSubstr("there is no GPU 5"))));
}

TEST(GpuHealthTest, ADriverThatDoesNotWorkFails) {
  EXPECT_THAT(Said("init=18"), ElementsAre(AllOf(HasSubstr("FAILED  GPU health"),
                                                 HasSubstr("Driver/library version mismatch"))));
  EXPECT_THAT(Said("init=9"), ElementsAre(HasSubstr("not checked: no NVIDIA driver")));
}

TEST(GpuHealthTest, WithoutALibraryItIsSkippedWithAReason) {
  const GpuReport report = ReadGpuHealthHere("libno-such-library.so", "libno-nccl.so");
  EXPECT_THAT(Lines(JudgeGpus(report, {})),
              ElementsAre("ok      GPU health  not checked: no NVIDIA driver on this host"));
  EXPECT_EQ(report.nccl_version, "");
}

TEST(OutputOfChildTest, GivesUpOnOneThatHangsAndReadsOneThatDies) {
  const auto late = launcher::OutputOfChild(
      [] {
        while (true) pause();
        return std::string();
      },
      std::chrono::milliseconds(200));
  EXPECT_THAT(late.status().ToString(), HasSubstr("no answer within 0.2 s"));
  const auto dead =
      launcher::OutputOfChild([]() -> std::string { _exit(1); }, std::chrono::seconds(20));
  EXPECT_EQ(dead.value_or("?"), "");
}

}  // namespace
}  // namespace muster::preflight
