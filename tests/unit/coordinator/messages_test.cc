#include <gtest/gtest.h>

#include "common/membership/member_messages.h"

namespace muster::chief {
namespace {

using membership::HelloOf;
using membership::ReportOf;

// A parser refuses a message whose strings are not UTF-8: the chief would break the session.
TEST(MemberMessages, ErrorsOfAnyBytesReachTheChief) {
  membership::MemberState state;
  const std::string bytes = "cannot read caf\xe9.tfrecord";
  state.report.formation_error = {.generation = 1, .message = bytes};
  state.report.collective_error = {.generation = 1, .message = bytes};
  state.report.outcome_message = bytes;
  const std::string wire = ReportOf(state, {}, {}, false).SerializeAsString();
  proto::Report report;
  ASSERT_TRUE(report.ParseFromString(wire));
  EXPECT_EQ(report.collective_error().message(), "cannot read caf\xef\xbf\xbd.tfrecord");
  EXPECT_EQ(report.formation_error().message(), report.collective_error().message());
  EXPECT_EQ(report.outcome_message(), report.collective_error().message());
}

TEST(MemberMessages, AReportSaysWhereTheMemberStands) {
  membership::MemberState state;
  state.stage = membership::Stage::kWaiting;
  EXPECT_TRUE(ReportOf(state, {}, {}, false).waiting());
  state.stage = membership::Stage::kFinished;
  EXPECT_TRUE(ReportOf(state, {}, {}, false).finished());
  EXPECT_FALSE(ReportOf(state, {}, {}, false).waiting());
  EXPECT_TRUE(ReportOf(state, {}, {}, true).acknowledged());
}

TEST(MemberMessages, AHelloNamesTheGenerationUntilItIsOver) {
  membership::MemberState state;
  const membership::MemberOptions options;
  EXPECT_EQ(HelloOf(options, 7, state).run_id(), "");
  state.welcome = {.run_id = "run-a"};
  EXPECT_EQ(HelloOf(options, 7, state).run_id(), "") << "it holds no state of it yet";
  state.generation = 3;
  EXPECT_EQ(HelloOf(options, 7, state).run_id(), "run-a");
  EXPECT_EQ(HelloOf(options, 7, state).generation(), 3);
  state.over = 3;
  EXPECT_EQ(HelloOf(options, 7, state).generation(), 0);
  EXPECT_EQ(HelloOf(options, 7, state).highest_generation(), 3);
}

}  // namespace
}  // namespace muster::chief
