// The decisions about a trace, with time as an argument.
#include "chief/trace_recording.h"

#include <gmock/gmock.h>

namespace muster::chief {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Recording : public ::testing::Test {
 protected:
  MonotonicTime At(Duration after) const { return start_ + after; }
  TraceRecording Make(std::vector<std::string> tasks, bool independent = false) const {
    return TraceRecording(
        {.tasks = std::move(tasks), .independent = independent, .steps = 3, .limit = seconds(10)},
        start_);
  }
  static proto::TraceKeepRequest Piece(const std::string& task, int spans, bool last = true) {
    proto::TraceKeepRequest piece;
    piece.set_task(task);
    piece.set_host("host-a");
    piece.add_lanes("main loop");
    piece.add_names("step");
    for (int i = 0; i < spans; ++i) piece.add_spans()->set_duration_ns(5);
    piece.set_first_step(8);
    piece.set_last_step(10);
    piece.set_last(last);
    piece.mutable_clock()->set_clock("theirs");
    piece.mutable_clock()->set_offset_ns(70);
    return piece;
  }
  const MonotonicTime start_ = Clock::now();
};

TEST_F(Recording, AllRecordTheStepsAfterTheLatestOfThem) {
  TraceRecording recording = Make({"chief:0", "worker:0"});
  EXPECT_TRUE(recording.Begin("chief:0"));
  EXPECT_FALSE(recording.Begin("chief:0"));  // Once.
  EXPECT_TRUE(recording.Begin("worker:0"));
  EXPECT_FALSE(recording.Begin("worker:7"));
  recording.Align("chief:0", 7, At(milliseconds(1)));
  EXPECT_FALSE(recording.Window("chief:0", At(milliseconds(1))).has_value());
  recording.Align("worker:0", 6, At(milliseconds(2)));
  for (const char* task : {"chief:0", "worker:0"}) {
    const auto window = recording.Window(task, At(milliseconds(2)));
    ASSERT_TRUE(window.has_value());
    EXPECT_EQ(window->first_step(), 8);
    EXPECT_EQ(window->last_step(), 10);
  }
  EXPECT_EQ(recording.Take(Piece("chief:0", 2), "theirs"), "");
  EXPECT_FALSE(recording.IsComplete(At(seconds(3))));
  EXPECT_EQ(recording.Take(Piece("worker:0", 1), "ours"), "");
  EXPECT_TRUE(recording.IsComplete(At(seconds(3))));
  EXPECT_THAT(recording.Missing(), IsEmpty());
  const std::vector<TracedTask> tasks = recording.Delivered();
  ASSERT_THAT(tasks, SizeIs(2));
  EXPECT_TRUE(tasks[0].clock.shared);
  EXPECT_EQ(tasks[0].clock.offset_ns, 0);  // The same clock, for every measurement.
  EXPECT_FALSE(tasks[1].clock.shared);
  EXPECT_EQ(tasks[1].clock.offset_ns, 70);
}

TEST_F(Recording, ATaskThatDoesNotAnswerHoldsUpTheOthersForAWhileOnly) {
  TraceRecording recording = Make({"worker:0", "worker:1", "worker:2"});
  recording.Begin("worker:0");
  recording.Begin(
      "worker:1");  // Frozen: it has been asked, and says nothing. The third is not there.
  recording.Align("worker:0", 4, At(milliseconds(1)));
  EXPECT_FALSE(recording.Window("worker:0", At(milliseconds(1))).has_value());
  EXPECT_EQ(recording.NextDeadline(At(milliseconds(1))), At(TraceRecording::kAlign));
  const auto window = recording.Window("worker:0", At(TraceRecording::kAlign));
  ASSERT_TRUE(window.has_value());
  EXPECT_EQ(window->first_step(), 5);
  EXPECT_FALSE(recording.IsComplete(At(seconds(3))));
  EXPECT_EQ(recording.Take(Piece("worker:0", 1), "ours"), "");
  EXPECT_TRUE(recording.IsComplete(At(seconds(3))));
  EXPECT_THAT(recording.Missing(), ElementsAre("worker 1: it did not answer within 2 s",
                                               "worker 2: it was not connected to the chief"));
  EXPECT_THAT(recording.Delivered(), SizeIs(1));
}

TEST_F(Recording, NobodyIsThere) {
  const TraceRecording recording = Make({"worker:0"});
  EXPECT_FALSE(recording.IsComplete(At(seconds(1))));
  EXPECT_TRUE(recording.IsComplete(At(TraceRecording::kAlign)));
  EXPECT_THAT(recording.Missing(), ElementsAre("worker 0: it was not connected to the chief"));
}

TEST_F(Recording, ATaskThatDoesNotDeliverIsLeftOutAtTheEnd) {
  TraceRecording recording = Make({"worker:0", "worker:1"});
  for (const char* task : {"worker:0", "worker:1"}) {
    recording.Begin(task);
    recording.Align(task, 1, At(milliseconds(1)));
  }
  EXPECT_EQ(recording.Take(Piece("worker:0", 0), "ours"), "");
  const Duration end = seconds(10) + TraceRecording::kDelivery;
  EXPECT_FALSE(recording.IsComplete(At(end - milliseconds(1))));
  EXPECT_TRUE(recording.IsComplete(At(end)));
  EXPECT_THAT(recording.Missing(),
              ElementsAre("worker 0: it began none of the steps within 10 s",
                          "worker 1: it did not deliver its spans within 13 s"));
  EXPECT_THAT(recording.Delivered(), IsEmpty());
}

TEST_F(Recording, WithServersWorkersCountTheirOwnStepsAndServersRecordMeanwhile) {
  TraceRecording recording = Make({"worker:0", "ps:0"}, /*independent=*/true);
  recording.Begin("worker:0");
  recording.Begin("ps:0");
  recording.Align("ps:0", 0, At(milliseconds(1)));
  EXPECT_FALSE(recording.Window("ps:0", At(milliseconds(1))).has_value());
  recording.Align("worker:0", 12, At(milliseconds(2)));
  const auto window = recording.Window("worker:0", At(milliseconds(2)));
  ASSERT_TRUE(window.has_value());
  EXPECT_EQ(window->count(), 3);
  EXPECT_EQ(window->last_step(), 0);
  EXPECT_FALSE(recording.Window("ps:0", At(seconds(1))).has_value());
  EXPECT_EQ(recording.Take(Piece("worker:0", 1), "ours"), "");
  const auto end = recording.Window("ps:0", At(seconds(1)));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->count(), 0);  // The recording is over.
  EXPECT_EQ(recording.Take(Piece("ps:0", 1), "ours"), "");
  EXPECT_TRUE(recording.IsComplete(At(seconds(1))));
}

TEST_F(Recording, WhatATaskSaysIsChecked) {
  TraceRecording recording = Make({"worker:0", "worker:1"});
  EXPECT_EQ(recording.Take(Piece("worker:0", 1), ""), "nothing is expected of it");
  EXPECT_EQ(recording.Take(Piece("worker:9", 1), ""), "it is no task of this trace");
  recording.Begin("worker:0");
  recording.Begin("worker:1");
  proto::TraceKeepRequest damaged = Piece("worker:0", 1);
  damaged.mutable_spans(0)->set_name(1);
  EXPECT_EQ(recording.Take(damaged, ""), "its spans are damaged");
  EXPECT_EQ(recording.Take(Piece("worker:0", 1), ""),
            "its spans are damaged");  // Not trusted again.
  proto::TraceKeepRequest many = Piece("worker:1", 0, /*last=*/false);
  for (int i = 0; i <= TraceRecording::kMaxNames; ++i) many.add_names("name");
  EXPECT_EQ(recording.Take(many, ""), "it has 258 names of spans, more than 256");
  EXPECT_THAT(recording.Missing(),
              ElementsAre("worker 0: its spans are damaged",
                          "worker 1: it has 258 names of spans, more than 256"));
}

TEST_F(Recording, NamesAndLanesAreCountedInAllPieces) {
  TraceRecording recording = Make({"worker:0", "worker:1"});
  recording.Begin("worker:0");
  recording.Begin("worker:1");
  proto::TraceKeepRequest names = Piece("worker:0", 0, /*last=*/false);
  for (int i = 1; i < 200; ++i) names.add_names("name");
  EXPECT_EQ(recording.Take(names, ""), "");
  EXPECT_EQ(recording.Take(names, ""), "it has 400 names of spans, more than 256");
  proto::TraceKeepRequest lanes = Piece("worker:1", 0, /*last=*/false);
  for (int i = 1; i < 200; ++i) lanes.add_lanes("lane");
  EXPECT_EQ(recording.Take(lanes, ""), "");
  EXPECT_EQ(recording.Take(lanes, ""), "it has 400 lanes, more than 256");
}

TEST_F(Recording, PiecesAreJoined) {
  TraceRecording recording = Make({"worker:0"});
  recording.Begin("worker:0");
  EXPECT_EQ(recording.Take(Piece("worker:0", 2, /*last=*/false), ""), "");
  EXPECT_THAT(recording.Delivered(), IsEmpty());
  proto::TraceKeepRequest rest;
  rest.set_task("worker:0");
  rest.add_spans();
  rest.set_last(true);
  EXPECT_EQ(recording.Take(rest, ""), "");
  ASSERT_THAT(recording.Delivered(), SizeIs(1));
  EXPECT_THAT(recording.Delivered()[0].spans, SizeIs(3));
  EXPECT_EQ(recording.Delivered()[0].host, "host-a");
}

}  // namespace
}  // namespace muster::chief
