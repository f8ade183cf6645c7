#include "common/cluster/verdict.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

const Verdict kLost{ExitCode::kRetryable, "worker:1", "node-b", 12, Phase::kReduce, "lost: gone"};

TEST(VerdictLine, TheChiefAndTheCulpritTellTheRootCause) {
  EXPECT_EQ(Describe(kLost), "worker 1 on host node-b (step 12, reduce): lost: gone");
  EXPECT_EQ(FinalLine(kLost, "chief:0", true), "ROOT CAUSE: " + Describe(kLost));
  EXPECT_EQ(FinalLine(kLost, "worker:1", false), "ROOT CAUSE: " + Describe(kLost));
}

TEST(VerdictLine, FollowersNameTheCulprit) {
  EXPECT_EQ(FinalLine(kLost, "worker:0", false),
            "stopped because of worker 1: lost: gone (host node-b, step 12, reduce)");
}

TEST(VerdictLine, WhatIsNotKnownIsLeftOut) {
  Verdict early{ExitCode::kConfiguration, "worker:1", "", -1, Phase::kStarting, "bad job"};
  EXPECT_EQ(Describe(early), "worker 1: bad job");
  EXPECT_EQ(FinalLine(early, "worker:0", false), "stopped because of worker 1: bad job");
  early.step = 0;
  EXPECT_EQ(Describe(early), "worker 1 (starting): bad job");
  Verdict nobody{ExitCode::kRetryable, "", "", -1, Phase::kStarting, "not all came"};
  EXPECT_EQ(FinalLine(nobody, "chief:0", true), "ROOT CAUSE: not all came");
  EXPECT_EQ(FinalLine(nobody, "worker:0", false), "stopped: not all came");
}

TEST(VerdictLine, ACompletedJobHasNoLineAndAPreemptedOneNoCulprit) {
  EXPECT_EQ(FinalLine({}, "chief:0", true), "");
  EXPECT_TRUE(StatusOf({}, "chief:0", true).ok());
  const Verdict preempted{ExitCode::kPreempted, "", "", -1, Phase::kEnding, "stopped at step 9"};
  EXPECT_EQ(FinalLine(preempted, "chief:0", true), "stopped at step 9");
  EXPECT_EQ(ExitCodeOf(StatusOf(preempted, "worker:0", false)), ExitCode::kPreempted);
  const Verdict left{ExitCode::kPreempted, "worker:0", "a", 9, Phase::kData, "stopped as asked"};
  EXPECT_EQ(FinalLine(left, "worker:0", false),
            "worker 0 on host a (step 9, data): stopped as asked");
}

}  // namespace
}  // namespace muster
