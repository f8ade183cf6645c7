#include "muster/status.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(ExitCode, EachMakerHasItsCode) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), ExitCode::kDone);
  EXPECT_EQ(ExitCodeOf(ProgramError("x")), ExitCode::kProgramFailed);
  EXPECT_EQ(ExitCodeOf(ConfigurationError("x")), ExitCode::kConfiguration);
  EXPECT_EQ(ExitCodeOf(DataError("x")), ExitCode::kDataDamaged);
  EXPECT_EQ(ExitCodeOf(PeerLost("x")), ExitCode::kRetryable);
  EXPECT_EQ(ExitCodeOf(DeadlinePassed("x")), ExitCode::kRetryable);
  EXPECT_EQ(ExitCodeOf(Superseded("x")), ExitCode::kRetryable);
  EXPECT_EQ(ExitCodeOf(Preempted("x")), ExitCode::kPreempted);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("x")), ExitCode::kProgramFailed);
}

TEST(ExitCode, SurvivesTheWire) {
  for (ExitCode code : {ExitCode::kProgramFailed, ExitCode::kConfiguration, ExitCode::kDataDamaged,
                        ExitCode::kRetryable, ExitCode::kPreempted}) {
    EXPECT_EQ(ExitCodeOf(StatusFor(code, "why")), code);
    EXPECT_EQ(ExitCodeFromInt(static_cast<int>(code)), code);
  }
  EXPECT_EQ(ExitCodeFromInt(77), ExitCode::kRetryable);
}

absl::StatusOr<int> Twice(absl::StatusOr<int> input) {
  MUSTER_ASSIGN_OR_RETURN(const int value, std::move(input));
  return 2 * value;
}

TEST(Macros, AssignOrReturn) {
  EXPECT_EQ(*Twice(2), 4);
  EXPECT_EQ(Twice(DataError("bad")).status(), DataError("bad"));
}

}  // namespace
}  // namespace muster
