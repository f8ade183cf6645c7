// The chief's end of evaluation, over a real server, asked by an evaluator's own link.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>

#include "absl/synchronization/notification.h"
#include "common/base/files/crc32c.h"
#include "common/cluster/protocol.h"
#include "common/rpc/channel.h"
#include "tests/unit/base/becomes.h"
#include "tests/unit/checkpoint/memory_file_system.h"
#include "tests/unit/evaluation/harness.h"

namespace muster::evaluator {
namespace {

using evaluation::Folder;
using evaluation::kPatience;
using evaluation::TestChief;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::Becomes;

class Service : public ::testing::Test {
 protected:
  // Makes the part of a checkpoint that the service reads.
  std::string Checkpoint(int64_t step) {
    const std::string path = folder_.path() + "/step-" + std::to_string(step);
    std::filesystem::create_directory(path);
    std::ofstream(path + "/manifest.json") << "manifest of " << step;
    return path;
  }
  void Announce(TestChief& chief, int64_t step, bool final = false) {
    const std::string path = Checkpoint(step);
    chief.service().Announce(step, "step-" + std::to_string(step), path, final);
  }
  static int64_t Offered(ChiefLink& link, int64_t after) {
    const auto reply = link.NextCheckpoint(after, false);
    EXPECT_TRUE(reply.ok()) << Message(reply.status());
    return reply.ok() && reply->has_checkpoint() ? reply->checkpoint().step() : -1;
  }
  static proto::EvaluationReport Done(int64_t step, double loss) {
    proto::EvaluationReport report;
    report.set_step(step);
    report.set_done(true);
    report.set_examples(10);
    (*report.mutable_metrics())["loss"] = loss;
    return report;
  }

  Folder folder_;
};

TEST_F(Service, TellsTheJobAtOnce) {
  TestChief chief({}, "run-b", "{\"seed\": 1}");
  const auto reply = chief.Link()->NextCheckpoint(-1, true);
  ASSERT_TRUE(reply.ok()) << Message(reply.status());
  EXPECT_EQ(reply->job(), "{\"seed\": 1}");
  EXPECT_EQ(reply->run_id(), "run-b");
  EXPECT_NE(reply->chief_incarnation(), 0u);
  EXPECT_FALSE(reply->has_checkpoint());
}

TEST_F(Service, AnswersAHeldCallWhenThereIsACheckpoint) {
  TestChief chief;
  const auto link = chief.Link();
  auto offered = std::async(std::launch::async, [&] {
    int64_t step = -1;
    while (step < 0) step = Offered(*link, -1);
    return step;
  });
  Announce(chief, 5);
  EXPECT_EQ(offered.get(), 5);
  EXPECT_THAT(chief.pinned(), ElementsAre(5));
}

TEST_F(Service, AnnouncesWhereTheCheckpointIsAndHowToTellIt) {
  TestChief chief;
  Announce(chief, 5, true);
  const auto link = chief.Link();
  const auto reply = link->NextCheckpoint(-1, false);
  ASSERT_TRUE(reply.ok() && reply->has_checkpoint());
  const proto::Announcement& announced = reply->checkpoint();
  EXPECT_EQ(announced.name(), "step-5");
  EXPECT_EQ(announced.path(), folder_.path() + "/step-5");
  EXPECT_TRUE(announced.final());
  char checksum[9];
  snprintf(checksum, sizeof checksum, "%08x", Crc32c("manifest of 5"));
  EXPECT_EQ(announced.manifest_checksum(), checksum);
}

TEST_F(Service, GivesTheNewestToAnEvaluatorThatFallsBehind) {
  TestChief chief;
  const auto link = chief.Link();
  Announce(chief, 10);
  ASSERT_EQ(Offered(*link, -1), 10);
  for (int64_t step : {20, 30, 40}) Announce(chief, step);
  ASSERT_TRUE(link->SendReport(Done(10, 1.0)).ok());
  EXPECT_TRUE(Becomes([&] { return chief.pinned().empty(); }));
  EXPECT_EQ(Offered(*link, 10), 40);
  EXPECT_THAT(chief.pinned(), ElementsAre(40));
}

TEST_F(Service, TakesMetricsOnceAndLetsTheCheckpointGo) {
  TestChief chief;
  const auto link = chief.Link();
  Announce(chief, 10);
  ASSERT_EQ(Offered(*link, -1), 10);
  for (int i = 0; i < 2; ++i) {  // reported twice: the first answer was lost
    const auto reply = link->SendReport(Done(10, 0.25));
    ASSERT_TRUE(reply.ok());
    EXPECT_TRUE(reply->known());
  }
  ASSERT_EQ(chief.results().size(), 1u);
  EXPECT_EQ(chief.results()[0].step, 10);
  EXPECT_EQ(chief.results()[0].metrics.at("loss"), 0.25);
  EXPECT_THAT(chief.pinned(), IsEmpty());
  EXPECT_EQ(Offered(*link, -1), -1) << "it is evaluated";
}

TEST_F(Service, AFailedEvaluationIsNoMetricAndNotTriedAgain) {
  TestChief chief;
  const auto link = chief.Link();
  Announce(chief, 10);
  ASSERT_EQ(Offered(*link, -1), 10);
  auto report = Done(10, 0.5);
  report.set_failure("damaged");
  ASSERT_TRUE(link->SendReport(report).ok());
  EXPECT_THAT(chief.results(), IsEmpty());
  EXPECT_EQ(Offered(*link, -1), -1);
}

TEST_F(Service, AHeartbeatForAnUnknownOrDeletedCheckpointSaysSo) {
  TestChief chief;
  const auto link = chief.Link();
  Announce(chief, 10);
  chief.Forget(10);
  EXPECT_EQ(Offered(*link, -1), -1) << "deleted before it was offered";
  proto::EvaluationReport beat;
  beat.set_step(99);
  auto reply = link->SendReport(beat);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_FALSE(reply->known());
  beat.set_step(-1);  // it prepares
  reply = link->SendReport(beat);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->known());
}

TEST_F(Service, RefusesAnotherClusterAndAnotherProtocol) {
  TestChief chief;
  ChiefLinkOptions options = chief.link_options();
  options.cluster_digest = "other";
  const auto reply = (*ChiefLink::Make(options))->NextCheckpoint(-1, true);
  EXPECT_EQ(ExitCodeOf(reply.status()), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(reply.status())), HasSubstr("another cluster than the chief"));

  // An evaluator of another version, with all else right. Its result is not used either.
  Announce(chief, 10);
  const auto stub =
      proto::Evaluation::NewStub(*rpc::MakeChannel(chief.link_options().chief_address));
  proto::EvaluatorIdentity evaluator;
  evaluator.set_protocol(kControlProtocol + 1);
  evaluator.set_task("evaluator:0");
  evaluator.set_incarnation(1);
  evaluator.set_cluster_digest(chief.link_options().cluster_digest);
  const std::string why =
      fmt::format("evaluator 0 speaks protocol {}, the chief {}: start all tasks from one build",
                  kControlProtocol + 1, kControlProtocol);
  proto::NextCheckpointRequest next;
  *next.mutable_evaluator() = evaluator;
  next.set_want_job(true);
  proto::NextCheckpointReply job;
  grpc::Status refused = stub->Next(rpc::WithDeadline(kPatience).get(), next, &job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused.error_message(), why);
  EXPECT_THAT(job.job(), IsEmpty());
  proto::EvaluationReport report = Done(10, 0.5);
  *report.mutable_evaluator() = evaluator;
  proto::EvaluationReply known;
  refused = stub->Report(rpc::WithDeadline(kPatience).get(), report, &known);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused.error_message(), why);
  EXPECT_THAT(chief.results(), IsEmpty());

  // The same calls with the chief's version.
  next.mutable_evaluator()->set_protocol(kControlProtocol);
  report.mutable_evaluator()->set_protocol(kControlProtocol);
  EXPECT_TRUE(stub->Next(rpc::WithDeadline(kPatience).get(), next, &job).ok());
  EXPECT_EQ(job.job(), "{}");
  EXPECT_TRUE(stub->Report(rpc::WithDeadline(kPatience).get(), report, &known).ok());
  EXPECT_EQ(chief.results().size(), 1u);
}

TEST_F(Service, OneEvaluatorAtATime) {
  TestChief chief;
  auto first = chief.Link();
  ASSERT_TRUE(first->NextCheckpoint(-1, true).ok());
  ChiefLinkOptions options = chief.link_options();
  options.patience = milliseconds(1);
  const auto refused = (*ChiefLink::Make(options))->NextCheckpoint(-1, true);
  EXPECT_EQ(ExitCodeOf(refused.status()), ExitCode::kRetryable);
  EXPECT_THAT(std::string(Message(refused.status())),
              HasSubstr("another process is evaluator 0 already"));
  // The first one dies in the middle of a call: its place is free at once.
  auto call = std::async(std::launch::async, [&] { return first->NextCheckpoint(-1, false); });
  std::this_thread::sleep_for(milliseconds(50));  // into the call; if not, the next line takes it
  first->Stop();
  EXPECT_TRUE(chief.Link()->NextCheckpoint(-1, true).ok());
  EXPECT_EQ(ExitCodeOf(call.get().status()), ExitCode::kPreempted);
}

TEST_F(Service, NobodyIsWaitedForWhereNoEvaluatorCame) {
  TestChief chief;
  Announce(chief, 10, true);
  const MonotonicTime start = Clock::now();
  chief.service().AwaitFinal();
  chief.service().End(Verdict());
  EXPECT_LT(Clock::now() - start, evaluation::kPatience) << "a silence is longer";
}

TEST_F(Service, WaitsForTheFinalEvaluation) {
  TestChief chief;
  const auto link = chief.Link();
  ASSERT_TRUE(link->NextCheckpoint(-1, true).ok());
  Announce(chief, 10, true);
  auto waiting = std::async(std::launch::async, [&] { chief.service().AwaitFinal(); });
  ASSERT_EQ(Offered(*link, -1), 10);
  EXPECT_EQ(waiting.wait_for(milliseconds(200)), std::future_status::timeout);
  ASSERT_TRUE(link->SendReport(Done(10, 1)).ok());
  waiting.get();
  EXPECT_EQ(chief.results().size(), 1u);
}

// Callbacks save other weights under the same step at the end of training.
TEST_F(Service, AFinalCheckpointThatTookThePlaceOfOneIsEvaluatedAsItIs) {
  for (const bool in_hand : {false, true}) {
    TestChief chief;
    const auto link = chief.Link();
    Announce(chief, 10);
    ASSERT_EQ(Offered(*link, -1), 10);
    if (!in_hand) {
      ASSERT_TRUE(link->SendReport(Done(10, 0.5)).ok());
    }
    std::ofstream(folder_.path() + "/step-10/manifest.json") << "another manifest";
    chief.service().Announce(10, "step-10", folder_.path() + "/step-10", true);
    auto waiting = std::async(std::launch::async, [&] { chief.service().AwaitFinal(); });
    EXPECT_EQ(waiting.wait_for(milliseconds(200)), std::future_status::timeout);
    if (in_hand) {
      proto::EvaluationReport under_way;
      under_way.set_step(10);
      const auto reply = link->SendReport(under_way);
      EXPECT_TRUE(reply.ok() && !reply->known()) << "it may give that up";
      EXPECT_FALSE(link->SendReport(Done(10, 0.5))->known());
    }
    int64_t step = -1;
    while (step < 0) step = Offered(*link, 10);
    EXPECT_EQ(step, 10);
    EXPECT_EQ(waiting.wait_for(milliseconds(200)), std::future_status::timeout);
    ASSERT_TRUE(link->SendReport(Done(10, 0.25)).ok());
    waiting.get();
    EXPECT_EQ(chief.results().back().metrics.at("loss"), 0.25);
    EXPECT_EQ(chief.results().size(), in_hand ? 1u : 2u);
    std::filesystem::remove_all(folder_.path() + "/step-10");
  }
}

TEST_F(Service, WhatIsTheNewestAtTheEndIsFinal) {
  TestChief chief;  // restored at the last step of its job
  const auto link = chief.Link();
  Announce(chief, 10);
  EXPECT_EQ(Offered(*link, 10), -1) << "evaluated for the chief before";
  auto waiting = std::async(std::launch::async, [&] { chief.service().AwaitFinal(); });
  int64_t step = -1;
  while (step < 0) step = Offered(*link, 10);
  EXPECT_EQ(step, 10);
  ASSERT_TRUE(link->SendReport(Done(10, 1)).ok());
  waiting.get();
}

TEST_F(Service, StopsWaitingForAnEvaluatorThatDies) {
  chief::EvaluationRules rules;
  rules.resume = seconds(2);  // above what may lie between two of its heartbeats
  TestChief chief(rules);
  auto link = chief.Link();
  Announce(chief, 10, true);
  ASSERT_EQ(Offered(*link, -1), 10);
  auto waiting = std::async(std::launch::async, [&] { chief.service().AwaitFinal(); });
  auto beat = std::async(std::launch::async, [&] {
    proto::EvaluationReport report;
    report.set_step(10);
    proto::EvaluationReply reply;
    while (link->SendHeartbeat(report, &reply).ok()) {
    }
  });
  EXPECT_EQ(waiting.wait_for(seconds(3)), std::future_status::timeout);
  link->Stop();
  beat.get();
  ASSERT_EQ(waiting.wait_for(evaluation::kPatience), std::future_status::ready);
  EXPECT_THAT(chief.pinned(), IsEmpty());
}

TEST_F(Service, StopsWaitingForASilentEvaluator) {
  chief::EvaluationRules rules;
  rules.heartbeat = milliseconds(500);
  TestChief chief(rules);
  const auto link = chief.Link();
  Announce(chief, 10, true);
  ASSERT_EQ(Offered(*link, -1), 10);
  chief.service().AwaitFinal();  // would last for ten minutes
  EXPECT_THAT(chief.results(), IsEmpty());
}

TEST_F(Service, StopsWaitingWhenItLeavesOrWhenAskedTo) {
  TestChief chief;
  const auto link = chief.Link();
  Announce(chief, 10, true);
  ASSERT_EQ(Offered(*link, -1), 10);
  auto waiting = std::async(std::launch::async, [&] { chief.service().AwaitFinal(); });
  link->NotifyLeaving("its data is damaged");
  waiting.get();

  TestChief other;
  const auto second = other.Link();
  Announce(other, 10, true);
  ASSERT_EQ(Offered(*second, -1), 10);
  auto stopped = std::async(std::launch::async, [&] { other.service().AwaitFinal(); });
  other.service().StopWaiting();
  stopped.get();
}

TEST_F(Service, TellsTheEnd) {
  TestChief chief;
  const auto link = chief.Link();
  ASSERT_TRUE(link->NextCheckpoint(-1, true).ok());
  Verdict verdict;
  verdict.code = ExitCode::kRetryable;
  verdict.task = "worker:1";
  verdict.message = "its process is gone";
  auto ending = std::async(std::launch::async, [&] { chief.service().End(verdict); });
  proto::NextCheckpointReply end;
  while (!end.has_end()) {
    const auto reply = link->NextCheckpoint(-1, false);
    ASSERT_TRUE(reply.ok());
    end = *reply;
  }
  const MonotonicTime answered = Clock::now();
  ending.get();
  EXPECT_LT(Clock::now() - answered, evaluation::kPatience)
      << "it leaves as soon as the evaluator knows";
  EXPECT_EQ(end.end().exit_code(), 138);
  EXPECT_EQ(end.end().message(), "stopped because of worker 1: its process is gone");
}

TEST_F(Service, StreamsFilesOfTheCheckpointInHandOnly) {
  TestChief chief;
  const auto link = chief.Link();
  Announce(chief, 10);
  std::string bytes(3'000'001, 'x');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 >> 3);
  std::ofstream(folder_.path() + "/step-10/model.safetensors", std::ios::binary) << bytes;
  std::ofstream(folder_.path() + "/secret") << "no";
  std::string got;
  const auto take = [&](const std::string& data) {
    got += data;
    return absl::OkStatus();
  };
  EXPECT_FALSE(link->Fetch(10, "model.safetensors", take).ok()) << "nobody evaluates it";
  ASSERT_EQ(Offered(*link, -1), 10);
  ASSERT_TRUE(link->Fetch(10, "model.safetensors", take).ok());
  EXPECT_TRUE(got == bytes);
  got.clear();
  EXPECT_FALSE(link->Fetch(10, "../secret", take).ok());
  EXPECT_FALSE(link->Fetch(10, "..", take).ok());
  EXPECT_FALSE(link->Fetch(10, "absent", take).ok());
  EXPECT_FALSE(link->Fetch(9, "model.safetensors", take).ok());
  EXPECT_EQ(got, "");
}

// Opens no weights for a while.
class HangingFileSystem final : public checkpoint::MemoryFileSystem {
 public:
  absl::StatusOr<std::unique_ptr<checkpoint::ReadableFile>> Open(const std::string& path) override {
    if (path.ends_with("model.safetensors")) {
      ++hanging;
      mended.WaitForNotification();
    }
    return MemoryFileSystem::Open(path);
  }
  std::atomic<int> hanging = 0;
  absl::Notification mended;
};

TEST_F(Service, ADiskThatHangsKeepsNoOtherCallWaiting) {
  constexpr int kFetches = 6;
  HangingFileSystem files;
  ASSERT_TRUE(files.MakeDirectory("/step-10").ok());
  for (const std::string name : {"manifest.json", "model.safetensors"}) {
    const auto file = files.Create("/step-10/" + name);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append("content").ok());
  }
  TestChief chief({}, "run-a", "{}", &files);
  const auto link = chief.Link();
  chief.service().Announce(10, "step-10", "/step-10", false);
  ASSERT_EQ(Offered(*link, -1), 10);
  std::vector<std::future<absl::Status>> fetches;
  for (int i = 0; i < kFetches; ++i)
    fetches.push_back(std::async(std::launch::async, [&] {
      return chief.Link()->Fetch(10, "model.safetensors", [](const std::string& data) {
        EXPECT_EQ(data, "content");
        return absl::OkStatus();
      });
    }));
  EXPECT_TRUE(Becomes([&] { return files.hanging > 1; }));
  EXPECT_TRUE(link->NextCheckpoint(10, false).ok());
  files.mended.Notify();
  for (auto& fetched : fetches) {
    const absl::Status status = fetched.get();
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace muster::evaluator
