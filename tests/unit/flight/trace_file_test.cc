#include "common/flight/trace_file.h"

#include <gmock/gmock.h>

#include <map>

#include "muster/json.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

TracedTask TaskOf(const std::string& name) {
  TracedTask task;
  task.task = name;
  task.host = "host-a";
  task.pid = 7;
  task.lanes = {"main loop", "communication, replica 0"};
  task.names = {"step", "reduce bucket"};
  task.clock = {"boot", 0, 0, 16, true};
  return task;
}

Json Parse(const std::string& text) {
  const auto json = ParseJson(text, "trace");
  EXPECT_TRUE(json.ok()) << Message(json.status()) << text;
  return json.value_or(Json::object());
}

std::vector<Json> SpansOf(const Json& trace) {
  std::vector<Json> spans;
  for (const Json& event : trace.at("traceEvents"))
    if (event.at("ph") == "X") spans.push_back(event);
  return spans;
}

TEST(TraceFile, HasAProcessForEachTaskAndAThreadForEachLane) {
  TracedTask chief = TaskOf("chief:0");
  chief.spans = {{.name = 0, .lane = 0, .begin_ns = 5'000, .duration_ns = 2'500, .step = 3},
                 {.name = 1,
                  .lane = 1,
                  .begin_ns = 6'000,
                  .duration_ns = 500,
                  .step = 3,
                  .bytes = 1024,
                  .sequence = 9,
                  .index = 2,
                  .truncated = true}};
  const Json trace = Parse(TraceText({chief}, {.run_id = "run-a"}));
  const std::vector<Json> spans = SpansOf(trace);
  ASSERT_THAT(spans, SizeIs(2));
  EXPECT_EQ(spans[0].at("name"), "step");
  EXPECT_EQ(spans[0].at("ts"), 0.0);  // The first span of all begins at 0.
  EXPECT_EQ(spans[0].at("dur"), 2.5);
  EXPECT_EQ(spans[1].at("name"), "reduce bucket 2");
  EXPECT_EQ(spans[1].at("cat"), "reduce bucket");
  EXPECT_EQ(spans[1].at("ts"), 1.0);
  EXPECT_EQ(spans[1].at("args"),
            Json({{"step", 3}, {"sequence", 9}, {"bytes", 1024}, {"truncated", true}}));
  EXPECT_EQ(spans[0].at("args"), Json({{"step", 3}}));
  EXPECT_NE(spans[0].at("tid"), spans[1].at("tid"));
  const std::string text = trace.dump();
  EXPECT_THAT(text, HasSubstr("chief 0 (host-a, pid 7)"));
  EXPECT_THAT(text, HasSubstr("communication, replica 0"));
  EXPECT_EQ(trace.at("otherData").at("run_id"), "run-a");
}

TEST(TraceFile, ClocksAreShiftedByTheirOffsets) {
  TracedTask chief = TaskOf("chief:0"), worker = TaskOf("worker:0");
  chief.spans = {{.begin_ns = 1'000'000, .duration_ns = 10'000}};
  worker.spans = {{.begin_ns = 501'000'000, .duration_ns = 10'000}};
  worker.clock = {"other boot", -500'000'000, 20'000, 16, false};
  const Json trace = Parse(TraceText({chief, worker}, {}));
  const std::vector<Json> spans = SpansOf(trace);
  ASSERT_THAT(spans, SizeIs(2));
  EXPECT_EQ(spans[0].at("ts"), spans[1].at("ts"));
  const Json& clock = trace.at("otherData").at("tasks").at(1).at("clock");
  EXPECT_EQ(clock.at("offset_us"), -500'000.0);
  EXPECT_EQ(clock.at("error_us"), 20.0);
  EXPECT_EQ(clock.at("shared"), false);
}

TEST(TraceFile, SpansThatOverlapWithoutNestingGoToAnotherThread) {
  TracedTask task = TaskOf("worker:0");
  task.lanes = {"push and pull"};
  task.spans = {{.begin_ns = 0, .duration_ns = 100},    // outer
                {.begin_ns = 10, .duration_ns = 20},    // nests
                {.begin_ns = 50, .duration_ns = 100},   // reaches beyond the outer one
                {.begin_ns = 100, .duration_ns = 10}};  // follows the outer one
  const Json trace = Parse(TraceText({task}, {}));
  std::map<double, int> thread;
  for (const Json& span : SpansOf(trace)) thread[span.at("ts").get<double>()] = span.at("tid");
  EXPECT_EQ(thread.at(0.0), thread.at(0.01));
  EXPECT_NE(thread.at(0.0), thread.at(0.05));
  EXPECT_EQ(thread.at(0.0), thread.at(0.1));
}

TEST(TraceFile, TextOfAnyBytesIsValidJson) {
  TracedTask task = TaskOf("worker:0");
  task.host = "ho\"st\xff\n";
  task.names = {"na\"me"};
  task.spans = {{.duration_ns = 1}};
  const Json trace = Parse(TraceText({task}, {.missing = {"worker 1: it did not answer"}}));
  EXPECT_EQ(SpansOf(trace).at(0).at("name"), "na\"me");
  EXPECT_THAT(trace.at("otherData").at("missing"), ElementsAre("worker 1: it did not answer"));
}

TEST(TraceFile, WithoutATaskIsValidToo) {
  EXPECT_THAT(Parse(TraceText({}, {})).at("traceEvents"), SizeIs(0));
}

TEST(TraceFile, TheClockIsThatOfTheBootAndTheTimeNamespace) {
  EXPECT_EQ(ClockOfThisProcess(), ClockOfThisProcess());
  EXPECT_THAT(ClockOfThisProcess(), Not(HasSubstr("\n")));
}

}  // namespace
}  // namespace muster
