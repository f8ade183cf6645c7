#include "common/telemetry/progress.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Kind = ProgressState::Kind;

ProgressState Step() {
  return {.epoch = 2,
          .epochs = 10,
          .step = 1250,
          .total_steps = 4690,
          .done = 312,
          .total = 469,
          .examples_per_second = 12345.6,
          .seconds_left = 83,
          .wait_share = 0.034,
          .input_share = 0.021,
          .metrics = {{"accuracy", 0.89306}, {"loss", 0.30123}}};
}

int Columns(std::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

TEST(ProgressBar, ShowsAllThereIsRoomFor) {
  EXPECT_EQ(RenderProgressBar(Step(), 120, {}, true),
            "epoch 3/10  ━━━━━━━━━━━━━━━╸────────  312/469  12,346 examples/s  loss 0.3012  "
            "accuracy 0.8931  wait 3 %  1:23 left");
  EXPECT_EQ(RenderProgressBar(Step(), 120, {}, false),
            "epoch 3/10  [==============>       ]  312/469  12,346 examples/s  loss 0.3012  "
            "accuracy 0.8931  wait 3 %  1:23 left");
}

TEST(ProgressBar, FitsEveryWidth) {
  ProgressState state = Step();
  for (int i = 0; i < 10; ++i) state.metrics["metrik_ä" + std::to_string(i)] = i;
  for (int width = 0; width < 300; ++width) {
    for (bool unicode : {false, true}) {
      EXPECT_LE(Columns(RenderProgressBar(state, width, {}, unicode)), width);
    }
  }
}

TEST(ProgressBar, LeavesTheLeastImportantOut) {
  EXPECT_EQ(RenderProgressBar(Step(), 80, {}, false),
            "epoch 3/10  [===>  ]  312/469  12,346 examples/s  loss 0.3012  1:23 left");
  EXPECT_EQ(RenderProgressBar(Step(), 45, {}, false),
            "epoch 3/10  312/469  loss 0.3012  1:23 left");
  EXPECT_EQ(RenderProgressBar(Step(), 30, {}, false), "epoch 3/10  loss 0.3012");
  EXPECT_EQ(RenderProgressBar(Step(), 7, {}, false), "epoch 3");
}

TEST(ProgressBar, CountsTheTimeLeftDownAndSaysWhenNothingComes) {
  EXPECT_THAT(RenderProgressBar(Step(), 120, seconds(3), false), HasSubstr("1:20 left"));
  EXPECT_THAT(RenderProgressBar(Step(), 120, seconds(42), false),
              testing::EndsWith("no progress for 0:42"));
}

TEST(ProgressBar, ShowsPassesOverOtherSplits) {
  const ProgressState state = {
      .kind = Kind::kEvaluate, .split = "validation", .done = 5, .total = 10};
  EXPECT_EQ(RenderProgressBar(state, 60, {}, false), "validation  [===========>          ]  5/10");
}

TEST(ProgressBar, LeavesOutWhatIsNotKnown) {
  EXPECT_EQ(RenderProgressBar({.step = 7, .done = 7}, 80, {}, false), "epoch 1  7");
}

TEST(ProgressLine, SaysItInPlainText) {
  EXPECT_EQ(RenderProgressLine(Step()),
            "epoch 3/10, step 312/469: loss 0.3012, accuracy 0.8931, 12,346 examples/s, wait 3 %, "
            "1:23 left");
  ProgressState epoch = Step();
  epoch.kind = Kind::kEpoch;
  epoch.seconds = 4.26;
  EXPECT_EQ(RenderProgressLine(epoch),
            "epoch 3/10: loss 0.3012, accuracy 0.8931, 12,346 examples/s, input 2 %, 4.3 s");
  epoch.split = "validation";
  EXPECT_THAT(RenderProgressLine(epoch), testing::StartsWith("epoch 3/10 validation: loss 0.3012"));
  epoch.split = "test";
  EXPECT_THAT(RenderProgressLine(epoch), testing::StartsWith("test: loss 0.3012"));
}

TEST(ProgressDisplay, OfATerminalHasABarAndLinesAtTheEndsOfPasses) {
  const MonotonicTime now = MonotonicTime(seconds(100));
  ProgressDisplay display(true, false);
  EXPECT_EQ(display.Bar(80, now), "");
  EXPECT_FALSE(display.NextChange(now).has_value());
  EXPECT_THAT(display.Update(Step(), now), IsEmpty());
  EXPECT_THAT(display.Update(Step(), now + seconds(60)), IsEmpty());
  EXPECT_THAT(display.Bar(80, now + seconds(60)), HasSubstr("1:23 left"));
  EXPECT_THAT(display.Bar(80, now + seconds(63)), HasSubstr("1:20 left"));
  EXPECT_EQ(display.NextChange(now + milliseconds(61500)), now + seconds(62));
  ProgressState epoch = Step();
  epoch.kind = Kind::kEpoch;
  EXPECT_EQ(display.Update(epoch, now + seconds(64)).size(), 1u);
  EXPECT_THAT(display.Bar(80, now + seconds(64)), HasSubstr("312/469"));
  EXPECT_THAT(display.Update({.kind = Kind::kEnd}, now + seconds(65)), IsEmpty());
  EXPECT_EQ(display.Bar(80, now + seconds(65)), "");
}

TEST(ProgressDisplay, WithoutATerminalHasALineNowAndThen) {
  const MonotonicTime now = MonotonicTime(seconds(100));
  ProgressDisplay display(false, false);
  int lines = 0;
  for (int i = 0; i < 100; ++i) {
    lines += static_cast<int>(display.Update(Step(), now + milliseconds(350) * i).size());
  }
  EXPECT_EQ(lines, 3);  // 35 s, one each 10
  EXPECT_EQ(display.Bar(80, now), "");
  EXPECT_THAT(display.Update({.kind = Kind::kEvaluate}, now + seconds(1000)), IsEmpty());
}

TEST(ProgressJson, ComesBackAsItWent) {
  ProgressState state = Step();
  state.kind = Kind::kEpoch;
  state.split = "validation";
  state.seconds = 1.5;
  state.metrics["loss"] = std::numeric_limits<double>::quiet_NaN();
  state.metrics["top"] = std::numeric_limits<double>::infinity();
  const auto back = ProgressFromJson(Json::parse(ProgressToJson(state).dump()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->kind, Kind::kEpoch);
  EXPECT_TRUE(std::isnan(back->metrics.at("loss")));
  EXPECT_TRUE(std::isinf(back->metrics.at("top")));
  EXPECT_EQ(ProgressToJson(*back), ProgressToJson(state));
}

TEST(ProgressJson, RefusesOtherThings) {
  for (const char* bad :
       {"{}", "[]", "1", R"({"kind": "dance"})", R"({"kind": "step", "step": "x"})",
        R"({"kind": "step", "metrics": []})"}) {
    EXPECT_FALSE(ProgressFromJson(Json::parse(bad)).ok()) << bad;
  }
}

TEST(Format, SecondsAndCounts) {
  EXPECT_EQ(FormatSeconds(0.4), "0:00");
  EXPECT_EQ(FormatSeconds(83.4), "1:23");
  EXPECT_EQ(FormatSeconds(3600 * 2 + 60 * 3 + 4), "2:03:04");
  EXPECT_EQ(FormatSeconds(86400 * 3 + 3600 * 4), "3 d 4 h");
  EXPECT_EQ(FormatCount(0.5), "0.50");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
}

TEST(RateMeter, FollowsWhatChanges) {
  RateMeter meter;
  EXPECT_EQ(meter.examples_per_second(), 0);
  for (int i = 0; i < 100; ++i) meter.Add(100, 0.1, 0.01);
  EXPECT_NEAR(meter.examples_per_second(), 1000, 1e-9);
  EXPECT_NEAR(meter.steps_per_second(), 10, 1e-9);
  EXPECT_NEAR(meter.wait_share(), 0.1, 1e-9);
  for (int i = 0; i < 100; ++i) meter.Add(100, 0.2, 0.1);  // 20 s later
  EXPECT_NEAR(meter.examples_per_second(), 500, 25);
  EXPECT_NEAR(meter.wait_share(), 0.5, 0.02);
}

}  // namespace
}  // namespace muster
