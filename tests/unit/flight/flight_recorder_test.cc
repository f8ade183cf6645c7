#include "common/flight/flight_recorder.h"

#include <gmock/gmock.h>

#include <set>
#include <thread>

namespace muster {
namespace {

using ::testing::ElementsAre;

CollectiveCall Call(uint64_t sequence, int replica = 0) {
  CollectiveCall call{"all_reduce", "float32", "sum", 100, 400};
  call.sequence = sequence;
  call.replica = replica;
  return call;
}

TEST(FlightRecorder, KeepsWhatHappenedInOrderWithStepPhaseAndGeneration) {
  FlightRecorder recorder;
  recorder.EnterGeneration((uint64_t{1} << 32) | 2, "chief:0, worker:0");
  recorder.EnterPhase(Phase::kReduce, 7);
  recorder.Starts(Call(3));
  recorder.Ends(Call(3), "");
  recorder.Note(FlightKind::kAborted, "worker 0 was lost");
  const std::vector<FlightEvent> events = recorder.Events();
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].kind, FlightKind::kForming);
  EXPECT_EQ(events[0].Detail(), "chief:0, worker:0");
  EXPECT_EQ(events[1].kind, FlightKind::kPhase);
  for (size_t i = 1; i < events.size(); ++i) {
    EXPECT_EQ(GenerationText(events[i].generation), "1.2");
    EXPECT_EQ(events[i].step, 7);
    EXPECT_EQ(events[i].phase, Phase::kReduce);
    EXPECT_GE(events[i].at, events[i - 1].at);
  }
  EXPECT_EQ(events[2].kind, FlightKind::kCollectiveStart);
  EXPECT_EQ(events[2].call.Text(), "all_reduce(float32 x 100, sum)");
  EXPECT_EQ(events[2].call.sequence, 3u);
  EXPECT_EQ(events[3].kind, FlightKind::kCollectiveEnd);
  EXPECT_EQ(events[4].Detail(), "worker 0 was lost");
}

TEST(FlightRecorder, ForgetsTheOldestAndCutsWhatIsLong) {
  FlightRecorder recorder(3, 1);
  for (int step = 1; step <= 10; ++step) recorder.EnterPhase(Phase::kForward, step);
  recorder.Note(FlightKind::kFailure, std::string(10000, 'x'));
  const std::vector<FlightEvent> events = recorder.Events();
  std::vector<int64_t> steps;
  for (const FlightEvent& event : events) steps.push_back(event.step);
  EXPECT_THAT(steps, ElementsAre(8, 9, 10, 10));
  EXPECT_EQ(recorder.recorded(), 11u);
  EXPECT_EQ(events.back().Detail(), std::string(sizeof(FlightEvent::detail), 'x'));
}

// A slot that held a long text and then a short event shows nothing of the text.
TEST(FlightRecorder, AnEventWithoutTextHasNoneOfTheOneBefore) {
  FlightRecorder recorder(1);
  recorder.Ends(Call(1), "text");
  recorder.EnterPhase(Phase::kData, 1);
  ASSERT_EQ(recorder.Events().size(), 1u);
  EXPECT_EQ(recorder.Events()[0].Detail(), "");
}

TEST(FlightRecorder, AGenerationsBeginningOutlivesItsSteps) {
  FlightRecorder recorder(10);
  recorder.EnterGeneration(1, "chief:0");
  for (int step = 1; step <= 100; ++step) recorder.EnterPhase(Phase::kForward, step);
  recorder.Note(FlightKind::kAborted, "why");
  const std::vector<FlightEvent> events = recorder.Events();
  ASSERT_EQ(events.size(), 12u);
  EXPECT_EQ(events.front().kind, FlightKind::kForming);
  EXPECT_EQ(events[1].step, 91);
  EXPECT_EQ(events.back().kind, FlightKind::kAborted);
}

TEST(FlightRecorder, KnowsTheOperationUnderWayAndTheLastOneDone) {
  FlightRecorder recorder;
  recorder.EnterGeneration(1, "");
  EXPECT_FALSE(recorder.CurrentPosition().in_flight);
  recorder.Starts(Call(1));
  recorder.Ends(Call(1), "");
  recorder.Starts(Call(2));
  recorder.EnterPhase(Phase::kReduce, 4);
  FlightRecorder::Position standing = recorder.CurrentPosition();
  EXPECT_TRUE(standing.in_flight);
  EXPECT_EQ(standing.call.sequence, 2u);
  EXPECT_EQ(standing.completed, 1u);
  recorder.Ends(Call(2), "lost worker 1");
  standing = recorder.CurrentPosition();
  EXPECT_TRUE(standing.in_flight) << "what failed is where it stands";
  EXPECT_EQ(standing.completed, 1u);
  // Another generation counts from 1 again.
  recorder.EnterGeneration(2, "");
  EXPECT_FALSE(recorder.CurrentPosition().in_flight);
  EXPECT_EQ(recorder.CurrentPosition().completed, 0u);
}

TEST(FlightRecorder, OfSeveralReplicasOperationsTheEarliestCounts) {
  FlightRecorder recorder;
  recorder.Starts(Call(5, 0));
  recorder.Starts(Call(5, 1));
  recorder.Ends(Call(5, 0), "");
  recorder.Starts(Call(6, 0));
  const FlightRecorder::Position standing = recorder.CurrentPosition();
  EXPECT_TRUE(standing.in_flight);
  EXPECT_EQ(standing.call.sequence, 5u);
  EXPECT_EQ(standing.call.replica, 1);
}

TEST(FlightRecorder, WritersAndReadersDisturbNobody) {
  FlightRecorder recorder(16, 4);  // small, so that slots are fought for
  std::atomic<bool> stop = false;
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 3; ++writer) {
    writers.emplace_back([&, writer] {
      for (uint64_t n = 1; !stop; ++n) {
        if (n % 8 == 0) recorder.Note(FlightKind::kAborted, std::string(200, 'a' + writer));
        CollectiveCall call = Call(n, writer);
        call.count = static_cast<int64_t>(n);
        call.bytes = 4 * call.count;
        recorder.Starts(call);
      }
    });
  }
  while (recorder.recorded() < 100'000) {
    for (const FlightEvent& event : recorder.Events()) {
      if (event.kind == FlightKind::kCollectiveStart) {
        // Whole: its parts belong together.
        ASSERT_EQ(event.call.count, static_cast<int64_t>(event.call.sequence));
        ASSERT_EQ(event.call.bytes, 4 * event.call.count);
      } else {
        ASSERT_EQ(event.Detail().size(), 200u);
        ASSERT_EQ(std::set<char>(event.Detail().begin(), event.Detail().end()).size(), 1u);
      }
    }
    (void)recorder.CurrentPosition();
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_FALSE(recorder.Events().empty());
}

}  // namespace
}  // namespace muster
