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

// A program's exception, or a path that an error quotes, may have any bytes. Protobuf and JSON
// accept only text.
TEST(Status, MessagesAreText) {
  const std::string bytes = "no luck with \xff in caf\xe9";
  const std::string text = "no luck with \ufffd in caf\ufffd";
  for (const absl::Status& status :
       {ProgramError(bytes), ConfigurationError(bytes), DataError(bytes), PeerLost(bytes),
        DeadlinePassed(bytes), Superseded(bytes), Preempted(bytes),
        StatusFor(ExitCode::kProgramFailed, bytes), Annotate(absl::InternalError(bytes), "")})
    EXPECT_EQ(Message(status), text) << status;
  EXPECT_EQ(Message(ProgramError("caf\u00e9")), "caf\u00e9");
}

absl::StatusOr<int> Twice(absl::StatusOr<int> input) {
  MUSTER_ASSIGN_OR_RETURN(const int value, std::move(input));
  return 2 * value;
}

// A file's name for something is no line of the log, and does not fill it.
TEST(Status, WhatFilesSayIsShownOnOneShortLine) {
  EXPECT_EQ(Message(DataError("has no \n\x1b[31m")), "has no \\n\\x1b[31m");
  EXPECT_LT(Message(DataError(std::string(1 << 20, 'x'))).size(), 5000u);
}

TEST(Macros, AssignOrReturn) {
  EXPECT_EQ(*Twice(2), 4);
  EXPECT_EQ(Twice(DataError("bad")).status(), DataError("bad"));
}

}  // namespace
}  // namespace muster
