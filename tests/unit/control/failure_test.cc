// How a job ends when something goes wrong, with a coordinator and its members in one process.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "absl/synchronization/notification.h"
#include "common/cluster/protocol.h"
#include "common/rpc/channel.h"
#include "proto/coordinator.grpc.pb.h"
#include "tests/unit/control/harness.h"

namespace muster::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// A member that vanishes in step 12 without a word.
absl::Status Vanish(Member& member, Generation&) {
  member.SetPhase(Phase::kForward, 12);
  std::this_thread::sleep_for(std::chrono::milliseconds(250));  // a heartbeat tells the step
  return absl::OkStatus();
}

TEST(Failure, AKilledMemberIsLostAtOnceAndNamedByAll) {
  TestTimes times;
  times.resume = std::chrono::seconds(20);  // not what finds it
  TestCluster cluster(2, times);
  cluster.StartChief();
  Crew crew;
  for (int rank : {0, 1}) crew.Add(cluster.member_options(rank), WaitInBarrier);
  auto victim = Member::Make(cluster.member_options(2));
  auto generation = victim->NextGeneration(0);
  ASSERT_TRUE(generation.ok()) << Message(generation.status());
  (void)Vanish(*victim, *generation);
  const MonotonicTime killed = Clock::now();
  cluster.data_port(2).Close();
  victim.reset();
  crew.Join();
  EXPECT_LT(Seconds(Clock::now() - killed), 5);
  const Verdict verdict = cluster.coordinator().Wait();
  EXPECT_EQ(verdict.code, ExitCode::kRetryable);
  EXPECT_EQ(verdict.task, "worker:1");
  EXPECT_EQ(std::string(Message(crew.result(0))),
            "ROOT CAUSE: worker 1 on host host2 (step 12, forward): lost: its connection broke "
            "and its port refuses connections, the process is gone");
  EXPECT_EQ(std::string(Message(crew.result(1))),
            "stopped because of worker 1: lost: its connection broke and its port refuses "
            "connections, the process is gone (host host2, step 12, forward)");
}

TEST(Failure, ABrokenSessionThatDoesNotResumeIsLost) {
  TestCluster cluster(1);
  cluster.StartChief();
  Crew crew;
  crew.Add(cluster.member_options(0), WaitInBarrier);
  auto victim = Member::Make(cluster.member_options(1));
  ASSERT_TRUE(victim->NextGeneration(0).ok());
  victim.reset();  // its data port still accepts connections
  crew.Join();
  EXPECT_THAT(std::string(Message(crew.result(0))), HasSubstr("did not come back within 0.5 s"));
}

TEST(Failure, AFrozenMemberIsFoundByItsSilence) {
  TestTimes times;
  times.heartbeat = std::chrono::milliseconds(1500);
  TestCluster cluster(1, times);
  cluster.StartChief();
  Crew crew;
  crew.Add(cluster.member_options(0), WaitInBarrier);
  MemberOptions options = cluster.member_options(1);
  options.timeouts.heartbeat_interval = std::chrono::hours(1);
  options.timeouts.heartbeat = std::chrono::hours(1);
  crew.Add(std::move(options), WaitInBarrier);
  crew.Join();
  const Verdict verdict = cluster.coordinator().Wait();
  EXPECT_EQ(verdict.task, "worker:0");
  EXPECT_THAT(verdict.message, HasSubstr("no heartbeat for"));
}

TEST(Failure, ANewProcessDoesNotTakeALostOnesBlame) {
  TestTimes times;
  times.heartbeat = std::chrono::milliseconds(1500);
  TestCluster cluster(1, times);
  CoordinatorOptions chief = cluster.coordinator_options();
  chief.admission.suspect = std::chrono::milliseconds(300);
  ASSERT_TRUE(cluster.StartChief(std::move(chief)).ok());
  Crew crew;
  crew.Add(cluster.member_options(0), WaitInBarrier);
  MemberOptions options = cluster.member_options(1);
  options.timeouts.heartbeat_interval = options.timeouts.heartbeat = std::chrono::hours(1);
  auto frozen = Member::Make(std::move(options));
  ASSERT_TRUE(frozen->NextGeneration(0).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const auto refused = Member::Make(cluster.member_options(1))->NextGeneration(0);
  EXPECT_EQ(ExitCodeOf(refused.status()), ExitCode::kRetryable);
  EXPECT_THAT(std::string(Message(refused.status())), HasSubstr("cannot take its place"));
  crew.Join();
  const Verdict verdict = cluster.coordinator().Wait();
  EXPECT_EQ(verdict.task, "worker:0");
  EXPECT_THAT(verdict.message, HasSubstr("no heartbeat for"));
}

TEST(Failure, APhaseDeadlineNamesTheOneThatIsWaitedFor) {
  TestCluster cluster(1);
  CoordinatorOptions options = cluster.coordinator_options();
  options.decision.phase[static_cast<int>(Phase::kReduce)] = std::chrono::milliseconds(600);
  ASSERT_TRUE(cluster.StartChief(std::move(options)).ok());
  Crew crew;
  crew.Add(cluster.member_options(0), WaitInBarrier);
  crew.Add(cluster.member_options(1), [](Member& member, Generation& generation) {
    member.SetPhase(Phase::kData, 12);  // its input never comes
    return member.Explain(generation.replicas[0]->Barrier()->Wait());
  });
  crew.Join();
  const Verdict verdict = cluster.coordinator().Wait();
  EXPECT_EQ(verdict.task, "worker:0");
  EXPECT_EQ(verdict.code, ExitCode::kRetryable);
  EXPECT_THAT(verdict.message, HasSubstr("while chief 0 waits for it in 'reduce'"));
}

TEST(Failure, AProgramErrorEndsTheJobWithItsMessage) {
  TestCluster cluster(2);
  cluster.StartChief();
  Crew crew;
  for (int rank : {0, 1}) crew.Add(cluster.member_options(rank), WaitInBarrier);
  crew.Add(cluster.member_options(2), [](Member& member, Generation&) -> absl::Status {
    member.SetPhase(Phase::kForward, 3);
    const absl::Status failure = ProgramError("loss is not [batch]");
    member.ReportFailure(failure);
    return failure;
  });
  crew.Join();
  const Verdict verdict = cluster.coordinator().Wait();
  EXPECT_EQ(verdict.code, ExitCode::kProgramFailed);
  EXPECT_THAT(Story(verdict), HasSubstr("(step 3, forward): loss is not [batch]"));
  EXPECT_EQ(ExitCodeOf(crew.result(0)), ExitCode::kProgramFailed);
  EXPECT_THAT(crew.member(1).FinalLine(crew.result(1)),
              HasSubstr("stopped because of worker 1: loss is not [batch]"));
  EXPECT_EQ(crew.member(2).FinalLine(crew.result(2)), "ROOT CAUSE: " + Story(verdict));
}

TEST(Failure, TheFirstFailureWinsOverTheNoiseThatFollows) {
  TestCluster cluster(2);
  cluster.StartChief();
  absl::Notification first;
  Crew crew;
  crew.Add(cluster.member_options(0), WaitInBarrier);
  crew.Add(cluster.member_options(1), [&first](Member& member, Generation&) {
    first.WaitForNotification();
    member.ReportFailure(ProgramError("the second error"));
    return member.Explain(PeerLost("connection reset"));
  });
  crew.Add(cluster.member_options(2), [&first](Member& member, Generation&) -> absl::Status {
    member.ReportFailure(DataError("train.npy is truncated"));
    first.Notify();
    return DataError("train.npy is truncated");
  });
  crew.Join();
  for (int i : {0, 1, 2}) EXPECT_EQ(ExitCodeOf(crew.result(i)), ExitCode::kDataDamaged);
  EXPECT_THAT(std::string(Message(crew.result(1))), HasSubstr("train.npy is truncated"));
}

TEST(Failure, ACollectiveErrorWaitsForItsRootCause) {
  TestCluster cluster(2);
  cluster.StartChief();
  Crew crew;
  absl::Notification reported;
  crew.Add(cluster.member_options(0), [&reported](Member& member, Generation&) {
    // The noise comes first: a peer's connection was reset.
    absl::Status verdict;
    std::thread explain([&] { verdict = member.Explain(PeerLost("worker:1: connection reset")); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    reported.Notify();
    explain.join();
    return verdict;
  });
  crew.Add(cluster.member_options(1), WaitInBarrier);
  auto victim = Member::Make(cluster.member_options(2));
  ASSERT_TRUE(victim->NextGeneration(0).ok());
  reported.WaitForNotification();
  cluster.data_port(2).Close();
  victim.reset();
  crew.Join();
  EXPECT_EQ(cluster.coordinator().Wait().task, "worker:1");
  EXPECT_THAT(std::string(Message(crew.result(0))), HasSubstr("ROOT CAUSE: worker 1"));
}

TEST(Failure, ACollectiveErrorWithoutARootCauseIsTheVerdict) {
  TestCluster cluster(1);
  CoordinatorOptions options = cluster.coordinator_options();
  options.decision.blame = std::chrono::milliseconds(300);
  ASSERT_TRUE(cluster.StartChief(std::move(options)).ok());
  Crew crew;
  crew.Add(cluster.member_options(0), WaitInBarrier);
  crew.Add(cluster.member_options(1), [](Member& member, Generation&) {
    return member.Explain(PeerLost("chief:0 (10.0.0.1:5): connection reset"));
  });
  crew.Join();
  for (int i : {0, 1}) {
    EXPECT_EQ(ExitCodeOf(crew.result(i)), ExitCode::kRetryable);
    EXPECT_THAT(std::string(Message(crew.result(i))), HasSubstr("10.0.0.1:5"));
  }
}

TEST(Failure, MembersEndByThemselvesWhenTheChiefIsLost) {
  TestCluster cluster(2);
  cluster.StartChief();
  Crew crew;
  for (int rank : {1, 2}) crew.Add(cluster.member_options(rank), WaitInBarrier);
  {
    auto chief = Member::Make(cluster.member_options(0));
    ASSERT_TRUE(chief->NextGeneration(0).ok());
    cluster.StopChief();
  }
  const MonotonicTime killed = Clock::now();
  crew.Join();
  EXPECT_LT(Seconds(Clock::now() - killed), 4);
  for (int i : {0, 1}) {
    EXPECT_EQ(ExitCodeOf(crew.result(i)), ExitCode::kRetryable);
    EXPECT_THAT(std::string(Message(crew.result(i))),
                HasSubstr(fmt::format("lost the chief chief:0 ({})", cluster.address())));
  }
}

TEST(Failure, AFailureBeforeJoiningIsTheVerdict) {
  TestCluster cluster(1);
  cluster.StartChief();
  Crew crew;
  crew.Add(cluster.member_options(0), WaitInBarrier);
  EarlyFailure report;
  report.task = "worker:0";
  report.chief_address = cluster.address();
  report.cluster_digest = "digest-a";
  report.failure = ConfigurationError("unknown key 'epoch': did you mean 'epochs'?");
  EXPECT_TRUE(ReportFailureTo(report, std::chrono::seconds(5)).ok());
  crew.Join();
  EXPECT_EQ(ExitCodeOf(crew.result(0)), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(crew.result(0))), HasSubstr("did you mean 'epochs'?"));
}

// As whoever started the process tells it.
TEST(Failure, ADeathThatNobodyMakesGoodIsTheVerdictAtOnce) {
  TestCluster cluster(1);
  cluster.StartChief();
  Crew crew;
  std::atomic<int> begun = 0;
  for (int rank : {0, 1})
    crew.Add(cluster.member_options(rank), [&begun](Member& member, Generation& generation) {
      ++begun;
      return WaitInBarrier(member, generation);
    });
  while (begun < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  proto::FailureReport report;
  report.set_protocol(kControlProtocol);
  report.set_task("worker:0");
  report.set_exit_code(static_cast<int>(ExitCode::kRetryable));
  report.set_message("was killed by SIGKILL, and nobody starts it again");
  report.set_gone(true);
  proto::FailureReply reply;
  const auto channel = rpc::MakeChannel(cluster.address());
  ASSERT_TRUE(channel.ok());
  ASSERT_TRUE(proto::Coordinator::NewStub(*channel)
                  ->ReportFailure(rpc::WithDeadline(std::chrono::seconds(5)).get(), report, &reply)
                  .ok());
  EXPECT_TRUE(reply.accepted()) << reply.reason();
  crew.Join();
  EXPECT_EQ(ExitCodeOf(crew.result(0)), ExitCode::kRetryable);
  EXPECT_THAT(std::string(Message(crew.result(0))),
              ContainsRegex(
                  "worker 0 on host host1 .*nobody starts it again; last heard of in step [0-9]+"));
}

TEST(Failure, AFailureOfSomebodyElseIsNotTheVerdict) {
  TestCluster cluster(1);
  cluster.StartChief();
  EarlyFailure report;
  report.task = "worker:0";
  report.chief_address = cluster.address();
  report.cluster_digest = "digest-b";
  report.failure = ConfigurationError("nonsense");
  EXPECT_FALSE(ReportFailureTo(report, std::chrono::seconds(5)).ok());
  report.cluster_digest = "digest-a";
  report.task = "evaluator:0";
  EXPECT_FALSE(ReportFailureTo(report, std::chrono::seconds(5)).ok());
  Crew crew;
  for (int rank : {0, 1}) crew.Add(cluster.member_options(rank), FinishAt7);
  crew.Join();
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kDone);
}

TEST(Failure, AMemberThatDoesNotFinishIsNamed) {
  TestTimes times;
  times.end = std::chrono::milliseconds(500);
  TestCluster cluster(1, times);
  cluster.StartChief();
  Crew crew;
  crew.Add(cluster.member_options(0), FinishAt7);
  crew.Add(cluster.member_options(1), WaitInBarrier);
  crew.Join();
  const Verdict verdict = cluster.coordinator().Wait();
  EXPECT_EQ(verdict.code, ExitCode::kRetryable);
  EXPECT_EQ(verdict.task, "worker:0");
  EXPECT_THAT(verdict.message, HasSubstr("did not finish within 0.5 s (timeouts.end) of chief 0"));
}

}  // namespace
}  // namespace muster::testing
