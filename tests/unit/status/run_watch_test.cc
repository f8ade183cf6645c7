#include "chief/status/run_watch.h"

#include <gmock/gmock.h>

#include <thread>

namespace muster::chief {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

StepReport StepOf(int64_t step) {
  StepReport report;
  report.step = step;
  report.epoch = 1;
  report.total_steps = 100;
  report.loss = 0.5;
  report.learning_rate = 0.1;
  report.examples = 10;
  report.total_seconds = 0.5;
  report.values = {{"d_loss", 2}};
  report.metrics = {{"accuracy", 0.75}};
  return report;
}

proto::RunEvent Lost(const std::string& text) {
  proto::RunEvent event;
  event.set_kind(proto::RunEvent::LOST);
  event.set_step(-1);
  event.set_text(text);
  return event;
}

proto::StatusReply Described(const RunWatch& watch) {
  proto::StatusReply reply;
  watch.Describe(&reply);
  return reply;
}

TEST(RunWatch, TellsHowFarTrainingIs) {
  RunWatch watch({"a program", "mirrored", "runs/a"});
  EXPECT_EQ(Described(watch).progress().program(), "a program");
  EXPECT_LT(Described(watch).progress().seconds_left(), 0);
  StartReport start;
  start.program = "linear";
  start.epochs = 5;
  start.global_batch_size = 10;
  watch.OnStart(start);
  watch.OnStep(StepOf(20));
  const proto::RunProgress progress = Described(watch).progress();
  EXPECT_EQ(progress.program(), "linear");
  EXPECT_EQ(progress.strategy(), "mirrored");
  EXPECT_EQ(progress.step(), 20);
  EXPECT_EQ(progress.total_steps(), 100);
  EXPECT_EQ(progress.epoch(), 1);
  EXPECT_EQ(progress.epochs(), 5);
  EXPECT_DOUBLE_EQ(progress.examples_per_second(), 20);
  EXPECT_DOUBLE_EQ(progress.seconds_left(), 40);
  EXPECT_EQ(progress.metrics().at("loss"), 0.5);
  EXPECT_EQ(progress.metrics().at("accuracy"), 0.75);
  EXPECT_EQ(progress.metrics().at("d_loss"), 2);
  EXPECT_EQ(progress.checkpoint(), "");
}

TEST(RunWatch, NamesTheMetricsOfAPass) {
  RunWatch watch({});
  watch.OnStep(StepOf(1));
  watch.OnEvaluateProgress("validation", 1, 5);
  EXPECT_EQ(Described(watch).progress().split(), "validation");
  EpochReport pass;
  pass.split = "validation";
  pass.metrics = {{"loss", 0.4}};
  watch.OnEpoch(pass);
  watch.OnEvaluation({{"loss", 0.3}});
  watch.OnStep(StepOf(2));
  const proto::RunProgress progress = Described(watch).progress();
  EXPECT_EQ(progress.split(), "train");
  EXPECT_EQ(progress.metrics().at("loss"), 0.5);
  EXPECT_EQ(progress.metrics().at("val_loss"), 0.4);
  EXPECT_EQ(progress.metrics().at("eval_loss"), 0.3);
}

TEST(RunWatch, KeepsTheLastEvents) {
  RunWatch watch({});
  for (int i = 1; i <= 150; ++i) watch.OnEvent(Lost("event " + std::to_string(i)));
  const proto::StatusReply reply = Described(watch);
  ASSERT_EQ(reply.events_size(), 100);
  EXPECT_EQ(reply.events(0).text(), "event 51");
  EXPECT_EQ(reply.events(99).text(), "event 150");
  EXPECT_GE(reply.events(99).age_seconds(), 0);
  uint64_t last = 148;
  const auto news = watch.EventsSince(&last);
  ASSERT_THAT(news, SizeIs(2));
  EXPECT_EQ(news[0].text(), "event 149");
  EXPECT_EQ(last, 150u);
  EXPECT_THAT(watch.EventsSince(&last), SizeIs(0));
  uint64_t none = 0;
  EXPECT_THAT(watch.EventsSince(&none), SizeIs(100));
}

TEST(RunWatch, GivesAnEventTheStepOfTraining) {
  RunWatch watch({});
  watch.OnEvent(Lost("early"));
  watch.OnStep(StepOf(7));
  watch.OnEvent(Lost("late\n\x1b[2J"));
  const proto::StatusReply reply = Described(watch);
  EXPECT_EQ(reply.events(0).step(), -1);
  EXPECT_EQ(reply.events(1).step(), 7);
  EXPECT_THAT(reply.events(1).text(), Not(HasSubstr("\x1b")));
  EXPECT_THAT(reply.events(1).text(), Not(HasSubstr("\n")));
}

TEST(RunWatch, TellsOfTheLastCheckpoint) {
  RunWatch watch({});
  watch.OnCheckpoint(5, "runs/a/checkpoints/step-00000005");
  const proto::StatusReply reply = Described(watch);
  EXPECT_EQ(reply.progress().checkpoint(), "runs/a/checkpoints/step-00000005");
  EXPECT_EQ(reply.progress().checkpoint_step(), 5);
  EXPECT_GE(reply.progress().checkpoint_age_seconds(), 0);
  ASSERT_EQ(reply.events_size(), 1);
  EXPECT_EQ(reply.events(0).kind(), proto::RunEvent::CHECKPOINT);
}

TEST(RunWatch, NamesAStraggler) {
  RunWatch watch({});
  watch.OnStraggler({TaskType::kWorker, 1}, true);
  watch.OnStraggler({TaskType::kWorker, 1}, false);
  const proto::StatusReply reply = Described(watch);
  EXPECT_EQ(reply.events(0).kind(), proto::RunEvent::STRAGGLER);
  EXPECT_EQ(reply.events(0).task(), "worker:1");
  EXPECT_EQ(reply.events(0).text(), "worker 1 is a straggler: the others wait for it");
  EXPECT_EQ(reply.events(1).text(), "worker 1 is no longer a straggler");
}

TEST(RunWatch, MayBeReadWhileItIsWritten) {
  RunWatch watch({});
  std::thread writer([&watch] {
    for (int i = 1; i <= 2000; ++i) {
      watch.OnStep(StepOf(i));
      watch.OnEvent(Lost("x"));
    }
  });
  CurveCursor cursor;
  int64_t seen = 0;
  while (seen < 2000) {
    const proto::StatusReply reply = Described(watch);
    EXPECT_GE(reply.progress().step(), seen);
    seen = reply.progress().step();
    (void)watch.CurvesSince(&cursor);
  }
  writer.join();
}

}  // namespace
}  // namespace muster::chief
