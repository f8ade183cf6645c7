#include "common/base/faults/process_fault.h"

#include <gmock/gmock.h>

namespace muster {
namespace {

using testing::HasSubstr;

// The exit code of a process with an error, and whether it alone ends.
struct Fate {
  ExitCode code;
  bool process_ends;
  bool operator==(const Fate&) const = default;
};
Fate FateOf(FaultCause kind) {
  const absl::Status status = FaultStatus(kind, "x");
  return {ExitCodeOf(status), IsProcessFault(status)};
}
constexpr Fate kProgram{ExitCode::kProgramFailed, false}, kWrong{ExitCode::kConfiguration, false},
    kPeer{ExitCode::kRetryable, false}, kProcess{ExitCode::kRetryable, true};

TEST(ProcessFault, CudaErrorsAreSortedByWhoCanMendThem) {
  for (const int error : {214, 220, 304, 702, 714, 802, 999})
    EXPECT_EQ(FateOf(FaultOfCuda(error)), kProcess) << error;
  for (const int error : {3, 46, 700, 715, 716, 718, 719})
    EXPECT_EQ(FateOf(FaultOfCuda(error)), kProcess) << error;
  for (const int error : {35, 100, 101, 209, 803})
    EXPECT_EQ(FateOf(FaultOfCuda(error)), kWrong) << error;
  for (const int error : {1, 2, 400, 710})  // argument, out of memory, handle, assertion
    EXPECT_EQ(FateOf(FaultOfCuda(error)), kProgram) << error;
}

TEST(ProcessFault, NcclErrorsAreSortedByWhoCanMendThem) {
  EXPECT_EQ(FateOf(FaultOfNccl(1, "")), kProcess);
  for (const int result : {4, 5}) EXPECT_EQ(FateOf(FaultOfNccl(result, "")), kWrong) << result;
  // A survivor of a lost peer keeps what it has in memory.
  for (const int result : {2, 3, 6}) EXPECT_EQ(FateOf(FaultOfNccl(result, "")), kPeer) << result;
  EXPECT_EQ(FateOf(FaultOfNccl(3, "NCCL version mismatch: 2.27.3, 2.28.9")), kWrong);
}

TEST(ProcessFault, ExceptionsWithoutANumberAreSortedByTheirText) {
  EXPECT_EQ(FateOf(FaultOfText("CUDA error: uncorrectable ECC error encountered")), kProcess);
  EXPECT_EQ(FateOf(FaultOfText("CUDA error: unspecified launch failure")), kProcess);
  EXPECT_EQ(FateOf(FaultOfText("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED")), kProcess);
  EXPECT_EQ(FateOf(FaultOfText("CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling x")),
            kProcess);
  for (const char* what :
       {"CUDA error: device-side assert triggered", "CUDA out of memory. Tried to allocate 2 GiB",
        "CUDA error: CUBLAS_STATUS_INVALID_VALUE", "mat1 and mat2 shapes cannot be multiplied"})
    EXPECT_EQ(FateOf(FaultOfText(what)), kProgram) << what;
}

TEST(ProcessFault, AnUncertainFaultIsTheProgramsAfterSomeRestarts) {
  const absl::Status uncertain = ProcessFault("illegal address", true);
  for (int restarts = 0; restarts < kUncertainFaults; ++restarts)
    EXPECT_TRUE(IsProcessFault(ClassifyFault(uncertain, restarts))) << restarts;
  // Judged once: who has come so far is not asked again.
  EXPECT_TRUE(IsProcessFault(ClassifyFault(ClassifyFault(uncertain, 0), kUncertainFaults)));
  const absl::Status judged = ClassifyFault(uncertain, kUncertainFaults);
  EXPECT_EQ(ExitCodeOf(judged), ExitCode::kProgramFailed);
  EXPECT_FALSE(IsProcessFault(judged));
  EXPECT_THAT(std::string(Message(judged)), HasSubstr("illegal address; this task was started"));
  EXPECT_TRUE(IsProcessFault(ClassifyFault(ProcessFault("ECC", false), 99)));
  EXPECT_EQ(ClassifyFault(PeerLost("gone"), 99), PeerLost("gone"));
}

}  // namespace
}  // namespace muster
