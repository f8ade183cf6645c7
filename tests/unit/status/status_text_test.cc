#include "deploy/status/status_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

namespace muster::status {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::string TextOf(const proto::StatusReply& reply) {
  return fmt::format("{}\n", fmt::join(StatusLines(reply, 5), "\n"));
}

proto::StatusReply Running() {
  proto::StatusReply reply;
  reply.set_run_id("1a2b");
  reply.set_stage("running");
  reply.set_generation((uint64_t{1} << 32) | 2);
  reply.set_uptime_seconds(83);
  proto::RunProgress& progress = *reply.mutable_progress();
  progress.set_program("linear");
  progress.set_strategy("multi_worker_mirrored");
  progress.set_step(120);
  progress.set_total_steps(1200);
  progress.set_epoch(1);
  progress.set_epochs(5);
  progress.set_examples_per_second(1234);
  progress.set_seconds_left(83);
  (*progress.mutable_metrics())["accuracy"] = 0.875;
  (*progress.mutable_metrics())["loss"] = 0.25;
  progress.set_checkpoint("runs/a/checkpoints/step-00000100");
  progress.set_checkpoint_step(100);
  progress.set_checkpoint_age_seconds(12);
  proto::MemberStatus& chief = *reply.add_members();
  chief.set_task("chief:0");
  chief.set_joined(true);
  chief.set_connected(true);
  chief.set_phase("reduce");
  chief.set_step(120);
  chief.mutable_stats()->set_examples_per_second(617);
  chief.mutable_stats()->set_input_share(0.02);
  chief.mutable_stats()->set_wait_share(-1);
  chief.mutable_stats()->set_cpu_cores(1.5);
  chief.mutable_stats()->set_rss_bytes(512'000'000);
  chief.mutable_stats()->add_gpus()->set_utilization(0.5);
  proto::MemberStatus& worker = *reply.add_members();
  worker.set_task("worker:0");
  worker.set_joined(true);
  worker.set_connected(true);
  worker.set_phase("forward");
  worker.set_phase_age_seconds(31);
  worker.set_step(119);
  worker.set_straggler(true);
  reply.add_members()->set_task("worker:1");
  proto::RunEvent& lost = *reply.add_events();
  lost.set_kind(proto::RunEvent::LOST);
  lost.set_age_seconds(31);
  lost.set_step(87);
  lost.set_text("worker 1 was lost: its process is gone");
  proto::RunEvent& saved = *reply.add_events();
  saved.set_kind(proto::RunEvent::CHECKPOINT);
  saved.set_age_seconds(12);
  saved.set_step(100);
  saved.set_text("checkpoint of step 100 is complete");
  return reply;
}

TEST(StatusText, ShowsARunningJob) {
  EXPECT_EQ(TextOf(Running()),
            R"(linear, multi_worker_mirrored, run 1a2b: running, generation 1.2, running for 1:23
step 120 of 1,200 (10%), epoch 2 of 5, 1,234 examples/s, 1:23 left
loss 0.25  accuracy 0.875
checkpoint: step 100, 0:12 ago, runs/a/checkpoints/step-00000100

task        phase         step  examples/s  input  wait  CPU  GPU  memory  restarts
chief 0     reduce         120         617     2%     -  1.5  50%  512 MB         0
worker 0 *  forward 0:31   119           -      -     -    -    -       -         -
worker 1    not joined       -           -      -     -    -    -       -         -

* worker 0 is a straggler: the others wait for it

last fault:    0:31 ago  worker 1 was lost: its process is gone (step 87)
   0:31 ago  worker 1 was lost: its process is gone (step 87)
   0:12 ago  checkpoint of step 100 is complete
)");
}

TEST(StatusText, NamesTheVerdict) {
  proto::StatusReply reply = Running();
  reply.mutable_verdict()->set_exit_code(138);
  reply.mutable_verdict()->set_task("worker:1");
  reply.mutable_verdict()->set_message("its process is gone");
  EXPECT_THAT(TextOf(reply), HasSubstr(": failed, generation"));
  EXPECT_THAT(TextOf(reply), HasSubstr("\nworker 1: its process is gone\n"));
  reply.mutable_verdict()->set_exit_code(0);
  EXPECT_THAT(TextOf(reply), HasSubstr(": completed, generation"));
}

TEST(StatusText, NamesWhoIsMissing) {
  proto::StatusReply reply;
  reply.set_stage("joining");
  reply.set_roster("1/2 joined, missing worker 0 (127.0.0.1:5, never connected)");
  EXPECT_THAT(StatusLines(reply, 5), Contains(reply.roster()));
}

TEST(StatusText, NeedsNothing) {
  const std::string text = TextOf(proto::StatusReply());
  EXPECT_THAT(text, HasSubstr("no steps yet\n"));
  EXPECT_THAT(text, HasSubstr("checkpoint: none\n"));
}

TEST(StatusText, HasNoControlCharacters) {
  proto::StatusReply reply = Running();
  reply.mutable_progress()->set_program("\x1b[2Jlinear\n");
  reply.mutable_members(0)->set_phase("\x1b[31m");
  reply.mutable_events(0)->set_text("a\rb\xff");
  EXPECT_THAT(TextOf(reply), Not(HasSubstr("\x1b")));
  EXPECT_THAT(TextOf(reply), Not(HasSubstr("\r")));
  EXPECT_THAT(TextOf(reply), Not(HasSubstr("\xff")));
}

TEST(Cut, CountsCharacters) {
  EXPECT_EQ(Cut("abc", 5), "abc");
  EXPECT_EQ(Cut("abc", 3), "abc");
  EXPECT_EQ(Cut("abcd", 3), "abc");
  EXPECT_EQ(Cut("äöü", 2), "äö");
  EXPECT_EQ(Cut("abc", 0), "");
}

}  // namespace
}  // namespace muster::status
