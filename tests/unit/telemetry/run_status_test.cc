#include "common/telemetry/run_status.h"

#include <gmock/gmock.h>

#include <limits>

namespace muster {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

proto::MemberStatus Task(const std::string& name, double local, double wait, bool slow) {
  proto::MemberStatus task;
  task.set_task(name);
  task.set_joined(true);
  task.set_straggler(slow);
  task.mutable_stats()->set_local_step_seconds(local);
  task.mutable_stats()->set_wait_share(wait);
  return task;
}

TEST(StatusToJson, HasNullForWhatIsUnknown) {
  const Json json = StatusToJson(proto::StatusReply());
  EXPECT_TRUE(json["progress"].is_null());
  EXPECT_TRUE(json["verdict"].is_null());
  EXPECT_TRUE(json["generation"].is_null());
  EXPECT_EQ(json["tasks"], Json::array());

  proto::StatusReply reply;
  reply.mutable_progress()->set_seconds_left(-1);
  reply.add_members()->mutable_stats()->set_input_share(-1);
  const Json known = StatusToJson(reply);
  EXPECT_TRUE(known["progress"]["seconds_left"].is_null());
  EXPECT_TRUE(known["progress"]["total_steps"].is_null());
  EXPECT_TRUE(known["progress"]["checkpoint_step"].is_null());
  EXPECT_TRUE(known["tasks"][0]["stats"]["input_share"].is_null());
  EXPECT_TRUE(known["tasks"][0]["pid"].is_null());
}

TEST(StatusToJson, HasNoNumberForALossThatIsNone) {
  proto::StatusReply reply;
  auto& metrics = *reply.mutable_progress()->mutable_metrics();
  metrics["loss"] = std::numeric_limits<double>::quiet_NaN();
  metrics["accuracy"] = 0.5;
  const Json json = StatusToJson(reply);
  EXPECT_TRUE(json["progress"]["metrics"]["loss"].is_null());
  EXPECT_EQ(json["progress"]["metrics"]["accuracy"], 0.5);
}

TEST(StatusToJson, NamesTheOutcomeAsResultJsonDoes) {
  proto::StatusReply reply;
  const auto outcome = [&reply](int code) {
    reply.mutable_verdict()->set_exit_code(code);
    return StatusToJson(reply)["verdict"];
  };
  EXPECT_EQ(outcome(0)["status"], "completed");
  EXPECT_EQ(outcome(143)["status"], "preempted");
  EXPECT_EQ(outcome(138)["status"], "failed");
  EXPECT_EQ(outcome(138)["exit_code"], 138);
  EXPECT_EQ(outcome(-1)["status"], "failed");
  EXPECT_TRUE(outcome(-1)["exit_code"].is_null());
}

TEST(Stragglers, AreComparedWithTheOthers) {
  proto::StatusReply reply;
  *reply.add_members() = Task("chief:0", 0.05, 0.6, false);
  *reply.add_members() = Task("worker:0", 0.04, 0.5, false);
  *reply.add_members() = Task("worker:1", 0.22, 0.01, true);
  *reply.add_members() = Task("worker:2", 0.06, 0.4, false);
  *reply.add_members() = Task("worker:3", 0.3, 0.01, true);
  const auto slow = StragglersOf(reply);
  ASSERT_THAT(slow, SizeIs(2));
  EXPECT_EQ(slow[0].task, "worker:1");
  // Like the coordinator (pace.cc): all others count, and the middle two of an even number.
  EXPECT_DOUBLE_EQ(slow[0].others, 0.055);
  EXPECT_EQ(StragglerText(slow[0]),
            "worker 1 is a straggler: it needs 220 ms of a step before it waits for others, and "
            "they need 55 ms (median); they wait for 75 % of its time");
}

TEST(Stragglers, AreNotComparedWithTasksThatHaveNoStepsOfTheirOwn) {
  proto::StatusReply reply;
  *reply.add_members() = Task("worker:0", 0.2, 0, true);
  *reply.add_members() = Task("worker:1", 0.1, 0.5, false);
  *reply.add_members() = Task("ps:0", 0, 0, false);  // Computes no steps.
  reply.add_members()->set_task("ps:1");             // Has sent nothing yet.
  EXPECT_DOUBLE_EQ(StragglersOf(reply)[0].others, 0.1);
}

TEST(Stragglers, NeedNoNumbers) {
  proto::StatusReply reply;
  EXPECT_THAT(StragglersOf(reply), IsEmpty());
  reply.add_members()->set_task("worker:0");
  reply.mutable_members(0)->set_straggler(true);
  ASSERT_THAT(StragglersOf(reply), SizeIs(1));
  EXPECT_EQ(StragglerText(StragglersOf(reply)[0]),
            "worker 0 is a straggler: the others wait for it");
}

}  // namespace
}  // namespace muster
