#include "chief/status/page_feed.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "chief/status/json_patch.h"

namespace muster::chief {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr Duration kSecond = std::chrono::seconds(1);

Json Parsed(const std::string& text) { return *ParseJson(text, "a message"); }

TEST(MergePatch, MakesTheOneOfTheOther) {
  const char* const states[] = {
      R"({})",
      R"({"a": 1, "b": {"c": [1, 2], "d": "x"}})",
      R"({"a": 1, "b": {"c": [1, 3], "e": {"f": true}}})",
      R"({"a": {"b": 1}})",
      R"({"a": [], "b": 2.5})",
  };
  for (const char* from : states) {
    for (const char* to : states) {
      Json patched = Parsed(from);
      patched.merge_patch(MergePatchOf(Parsed(from), Parsed(to)));
      EXPECT_EQ(patched, Parsed(to)) << from << " to " << to;
    }
    EXPECT_EQ(MergePatchOf(Parsed(from), Parsed(from)), Json::object());
  }
}

TEST(MergePatch, TakesNullForMissing) {
  EXPECT_EQ(MergePatchOf(Parsed(R"({"a": null})"), Json::object()), Json::object());
  EXPECT_EQ(MergePatchOf(Json::object(), Parsed(R"({"a": null})")), Json::object());
  EXPECT_EQ(MergePatchOf(Parsed(R"({"a": 1})"), Parsed(R"({"a": null})")),
            Parsed(R"({"a": null})"));
}

// A job of `tasks` tasks, all numbers of which change with `step`.
proto::StatusReply Job(int tasks, int64_t step) {
  proto::StatusReply reply;
  reply.set_run_id("0123456789abcdef");
  reply.set_stage("running");
  reply.set_uptime_seconds(static_cast<double>(step) / 10);
  for (int i = 0; i < tasks; ++i) {
    const auto change = static_cast<double>((step * 7919 + i * 104729) % 1000);
    proto::MemberStatus& task = *reply.add_members();
    task.set_task(fmt::format("worker:{}", i));
    task.set_address(fmt::format("node-{}.training.example:2222", i));
    task.set_host(fmt::format("node-{}", i));
    task.set_joined(true);
    task.set_connected(true);
    task.set_pid(1000 + i);
    task.set_step(step);
    task.set_phase(step % 2 == 0 ? "forward" : "reduce");
    task.set_phase_age_seconds(change / 1e6);
    task.set_silence_seconds(change / 1e6);
    task.set_devices("cuda:0");
    proto::TaskStats& stats = *task.mutable_stats();
    stats.set_steps(step);
    stats.set_examples(step * 32);
    stats.set_bytes_sent(step * 1000000);
    stats.set_steps_per_second(10 + change / 997);
    stats.set_examples_per_second(320 + change / 9.97);
    stats.set_input_share(change / 9970);
    stats.set_wait_share(change / 4985);
    stats.set_local_step_seconds(0.1 + change / 99700);
    stats.set_cpu_cores(1 + change / 997);
    stats.set_rss_bytes(4'000'000'000 + static_cast<int64_t>(change) * 1'000'003);
    proto::GpuStats& gpu = *stats.add_gpus();
    gpu.set_uuid("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
    gpu.set_utilization(change / 1000);
    gpu.set_memory_access(change / 2000);
    gpu.set_memory_used_bytes(20'000'000'000 + static_cast<int64_t>(change) * 1'000'003);
    gpu.set_memory_total_bytes(80'000'000'000);
  }
  return reply;
}

void TrainTo(RunWatch* watch, int64_t step) {
  StepReport report;
  report.step = step;
  report.total_steps = 100000;
  report.loss = 1.0 / static_cast<double>(step);
  report.examples = 2048;
  report.total_seconds = 0.1;
  watch->OnStep(report);
}

class Feed : public testing::Test {
 protected:
  // Updates the browser's state with a message.
  void Take(const PageMessage& message) {
    const Json json = Parsed(message.text);
    seen_ = message.id;
    if (json.contains("state")) state_ = json["state"];
    if (json.contains("patch")) state_.merge_patch(json["patch"]);
  }
  std::optional<PageMessage> Next() { return feed_.Next(seen_, now_); }

  int tasks_ = 2;
  int64_t step_ = 1;
  RunWatch watch_{{"linear", "mirrored", "runs/a"}};
  PageFeed feed_{[this] { return Job(tasks_, step_); }, watch_, 1000};
  MonotonicTime now_ = Clock::now();
  uint64_t seen_ = 0;
  Json state_;
};

TEST_F(Feed, SendsTheWholeStateAndThenChanges) {
  auto message = Next();
  ASSERT_TRUE(message);
  EXPECT_GT(message->id, 1000u);
  Take(*message);
  EXPECT_EQ(state_["tasks"]["0"]["task"], "worker:0");
  EXPECT_FALSE(Next()) << "nothing is new";
  step_ = 2;
  EXPECT_FALSE(Next()) << "a second has not passed";
  now_ += kSecond;
  message = Next();
  ASSERT_TRUE(message);
  EXPECT_THAT(message->text, Not(HasSubstr("node-1")));
  Take(*message);
  EXPECT_EQ(state_["tasks"]["1"]["step"], 2);
  EXPECT_EQ(state_["tasks"]["1"]["host"], "node-1");
}

TEST_F(Feed, GivesTheSameToALateReader) {
  for (step_ = 1; step_ <= 60; ++step_) {
    TrainTo(&watch_, step_);
    now_ += kSecond;
    while (const auto message = Next()) Take(*message);
  }
  const Json followed = state_;
  seen_ = 0;
  const auto message = Next();
  ASSERT_TRUE(message);
  Take(*message);
  EXPECT_EQ(state_, followed);
  EXPECT_THAT(Parsed(message->text)["points"]["points"], SizeIs(60));
}

TEST_F(Feed, StartsAgainForAReaderThatMissedTooMuch) {
  Take(*Next());
  const uint64_t early = seen_;
  for (step_ = 1; step_ <= 60; ++step_) {
    now_ += kSecond;
    (void)feed_.Next(0, now_);
  }
  EXPECT_THAT(feed_.Next(early, now_)->text, HasSubstr("\"state\""));
  // An id of a chief whose clock was ahead.
  EXPECT_THAT(feed_.Next(early + 1'000'000, now_)->text, HasSubstr("\"state\""));
}

TEST_F(Feed, NumbersTheEvents) {
  Take(*Next());
  watch_.OnCheckpoint(3, "x");
  now_ += kSecond;
  const Json events = Parsed(Next()->text)["events"];
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0]["number"], 1);
  EXPECT_EQ(events[0]["kind"], "checkpoint");
}

TEST_F(Feed, StaysSmallWithManyTasks) {
  tasks_ = 64;
  Take(*Next());
  size_t bytes = 0;
  constexpr int kSeconds = 60;
  for (int i = 0; i < kSeconds; ++i) {
    for (int k = 0; k < 10; ++k) TrainTo(&watch_, ++step_);
    now_ += kSecond;
    while (const auto message = Next()) {
      bytes += message->text.size();
      Take(*message);
    }
  }
  RecordProperty("bytes_per_second", static_cast<int>(bytes / kSeconds));
  EXPECT_LT(bytes / kSeconds, 100'000u);
  EXPECT_GT(bytes / kSeconds, 1000u) << "all tasks change each second";
  seen_ = 0;
  const size_t whole = Next()->text.size();
  RecordProperty("bytes_of_the_whole", static_cast<int>(whole));
  EXPECT_LT(whole, 100'000u);
}

TEST_F(Feed, HasTheCurvesForScripts) {
  for (int64_t step = 1; step <= 5; ++step) TrainTo(&watch_, step);
  const Json whole = feed_.Whole();
  EXPECT_EQ(whole["curves"]["step"], Json({1, 2, 3, 4, 5}));
  EXPECT_THAT(whole["curves"]["loss"], SizeIs(5));
  EXPECT_THAT(whole["tasks"], SizeIs(2));
}

}  // namespace
}  // namespace muster::chief
