#include "common/flight/spans.h"

#include <gmock/gmock.h>

#include <map>
#include <thread>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

std::vector<std::string> NamesOf(const SpanRecord& record) {
  std::vector<std::string> names;
  for (const SpanEvent& span : record.spans) names.emplace_back(span.name);
  return names;
}

class Spans : public ::testing::Test {
 protected:
  // Makes a step with one span.
  void Step(int64_t step) {
    EnterSpanStep(step);
    const Span span("step");
  }
  const std::shared_ptr<SpanRecorder> recorder_ = std::make_shared<SpanRecorder>();
  const SpanThread thread_{recorder_, "main loop"};
};

TEST_F(Spans, NothingIsKeptUnlessSomebodyAsks) {
  Step(1);
  recorder_->Start();
  Step(2);
  EXPECT_THAT(recorder_->Stop().spans, SizeIs(1));
  Step(3);
  EXPECT_THAT(recorder_->Stop().spans, IsEmpty());
}

TEST_F(Spans, TheStepsOfTheWindowAreKeptAndThoseAroundItAreNot) {
  recorder_->Start();
  for (int64_t step = 1; step <= 7; ++step) Step(step);
  recorder_->SetSteps(3, 5);
  recorder_->WaitDone(MonotonicTime::max());
  const SpanRecord record = recorder_->Stop();
  EXPECT_EQ(record.first_step, 3);
  EXPECT_EQ(record.last_step, 5);
  std::vector<int64_t> steps;
  for (const SpanEvent& span : record.spans) steps.push_back(span.step);
  EXPECT_THAT(steps, ElementsAre(3, 4, 5));
}

TEST_F(Spans, ASpanHasTheStepAtItsBegin) {
  EnterSpanStep(4);
  recorder_->Start();
  {
    const Span before("before");
    EnterSpanStep(5);
    const MonotonicTime begin = Clock::now();
    const Span save("save");
    EnterSpanStep(6);
    AddSpan("reduction", begin);
    const Span last("last");
  }
  std::map<std::string, int64_t> steps;
  for (const SpanEvent& span : recorder_->Stop().spans) steps[span.name] = span.step;
  EXPECT_THAT(steps, ElementsAre(Pair("before", 4), Pair("last", 6), Pair("reduction", 5),
                                 Pair("save", 5)));
}

TEST_F(Spans, ACountOfStepsNeedsNoNumbers) {
  recorder_->Start();
  recorder_->SetCount(2);
  for (const int64_t step : {10, 17, 31, 40}) Step(step);
  recorder_->WaitDone(MonotonicTime::max());
  const SpanRecord record = recorder_->Stop();
  EXPECT_EQ(record.first_step, 10);
  EXPECT_EQ(record.last_step, 17);
  EXPECT_THAT(record.spans, SizeIs(2));
}

TEST_F(Spans, TheWaitEndsAtItsDeadlineOrWhenItIsWoken) {
  recorder_->Start();
  recorder_->SetSteps(1, 2);
  Step(1);
  const MonotonicTime begin = Clock::now();
  recorder_->WaitDone(begin + std::chrono::milliseconds(30));
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(30));
  std::thread other([this] { recorder_->Wake(); });
  recorder_->WaitDone(MonotonicTime::max());
  other.join();
  const SpanRecord record = recorder_->Stop();
  EXPECT_EQ(record.last_step, 1);  // What there is of the window.
  EXPECT_THAT(record.spans, SizeIs(1));
}

TEST_F(Spans, AProcessWithoutStepsGivesEverything) {
  recorder_->Start();
  { const Span span("update chunk", 3); }
  const SpanRecord record = recorder_->Stop();
  ASSERT_THAT(record.spans, SizeIs(1));
  EXPECT_EQ(record.spans[0].index, 3);
  EXPECT_EQ(record.first_step, 0);
}

TEST_F(Spans, WhatIsOpenAtTheEndIsKeptAndMarked) {
  recorder_->Start();
  EnterSpanStep(4);
  {
    const Span outer("outer");
    const Span inner("inner", 2);
    const MonotonicTime before = Clock::now();
    const SpanRecord record = recorder_->Stop();
    ASSERT_THAT(NamesOf(record), ElementsAre("outer", "inner"));
    for (const SpanEvent& span : record.spans) {
      EXPECT_TRUE(span.truncated);
      EXPECT_EQ(span.step, 4);
      EXPECT_GE(span.end, before);
      EXPECT_EQ(span.end, record.spans[0].end) << "they would not nest";
    }
    EXPECT_EQ(record.spans[1].index, 2);
    recorder_->Start();
    EXPECT_THAT(recorder_->Stop().spans, IsEmpty()) << "it was recorded before";
    recorder_->Start();
  }
  const SpanRecord record = recorder_->Stop();
  EXPECT_THAT(NamesOf(record), ElementsAre("inner", "outer")) << "they have ended now";
  EXPECT_FALSE(record.spans[0].truncated);
}

TEST_F(Spans, WhatIsOpenAndBeganAfterTheWindowIsNotKept) {
  recorder_->Start();
  recorder_->SetSteps(3, 4);
  EnterSpanStep(3);
  const Span save("save");
  EnterSpanStep(4);
  EnterSpanStep(5);
  const Span later("later");
  EXPECT_THAT(NamesOf(recorder_->Stop()), ElementsAre("save"));
}

TEST_F(Spans, SpansNestAndHaveTheLaneOfTheirThread) {
  recorder_->Start();
  {
    const Span outer("outer");
    const Span inner("inner");
    std::thread other([recorder = SpanThread::Recorder()] {
      const SpanThread thread(recorder, "input thread 0");
      const Span span("load batch");
    });
    other.join();
  }
  AddSpan("late", Clock::now(), 1, 64);
  const SpanRecord record = recorder_->Stop();
  EXPECT_THAT(NamesOf(record), ElementsAre("load batch", "inner", "outer", "late"));
  EXPECT_THAT(record.lanes, ElementsAre("main loop", "input thread 0"));
  EXPECT_EQ(record.spans[0].lane, 1);
  EXPECT_EQ(record.spans[2].lane, 0);
  EXPECT_LE(record.spans[2].begin, record.spans[1].begin);
  EXPECT_GE(record.spans[2].end, record.spans[1].end);
  EXPECT_EQ(record.spans[3].bytes, 64);
}

TEST_F(Spans, AThreadThatIsNotBoundRecordsNothing) {
  recorder_->Start();
  std::thread other([] {
    const Span span("nobody's");
    EXPECT_EQ(SpanThread::Recorder(), nullptr);
  });
  other.join();
  EXPECT_THAT(recorder_->Stop().spans, IsEmpty());
}

TEST_F(Spans, ALabelIsOfTheThreadAndOfItsScope) {
  {
    const SpanLabel label("reduce bucket", 4);
    EXPECT_STREQ(SpanLabel::Name(), "reduce bucket");
    EXPECT_EQ(SpanLabel::Index(), 4);
  }
  EXPECT_EQ(SpanLabel::Name(), nullptr);
  EXPECT_EQ(SpanLabel::Index(), -1);
}

TEST_F(Spans, TheOldestSpansAreDroppedAndCounted) {
  recorder_->Start();
  for (size_t i = 0; i < SpanRecorder::kCapacity + 10; ++i) AddSpan("span", Clock::now());
  const SpanRecord record = recorder_->Stop();
  EXPECT_THAT(record.spans, SizeIs(SpanRecorder::kCapacity));
  EXPECT_EQ(record.lost_spans, 10u);
}

}  // namespace
}  // namespace muster
