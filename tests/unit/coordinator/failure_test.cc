// How a job ends when something goes wrong, with a coordinator and its members in one process.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "absl/synchronization/notification.h"
#include "common/cluster/protocol.h"
#include "common/rpc/channel.h"
#include "proto/coordinator.grpc.pb.h"
#include "tests/unit/base/becomes.h"
#include "tests/unit/base/logged_lines.h"
#include "tests/unit/coordinator/harness.h"

namespace muster::chief::testing {
namespace {

using membership::EarlyFailure;
using membership::Member;
using membership::MemberOptions;
using membership::ReportFailureTo;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing_support::Becomes;

// Waits until a heartbeat has reported the step of worker 1.
void AwaitStepOfWorker1(const TestCluster& cluster, int64_t step) {
  const auto stub = proto::Coordinator::NewStub(*rpc::MakeChannel(cluster.address()));
  proto::StatusReply reply;
  while (reply.members_size() < 3 || reply.members(2).step() != step) {  // ctest bounds it
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_TRUE(stub->Status(rpc::WithDeadline(std::chrono::seconds(20)).get(), {}, &reply).ok());
  }
}

TEST(Failure, AKilledMemberIsLostAtOnceAndNamedByAll) {
  TestTimes times;
  times.resume = times.heartbeat = std::chrono::minutes(1);  // not what finds it
  times.rejoin = std::chrono::milliseconds(500);
  TestCluster cluster(2, times);
  cluster.StartChief();
  Crew crew;
  for (int rank : {0, 1}) crew.Add(cluster.member_options(rank), WaitForTheEnd);
  auto victim = Member::Make(cluster.member_options(2));
  auto generation = victim->NextGeneration(0);
  ASSERT_TRUE(generation.ok()) << Message(generation.status());
  victim->SetPhase(Phase::kForward, 12);
  AwaitStepOfWorker1(cluster, 12);
  const MonotonicTime killed = Clock::now();
  cluster.data_port(2).Close();
  victim.reset();
  crew.Join();
  EXPECT_LT(Seconds(Clock::now() - killed), 30);
  const Verdict verdict = cluster.coordinator().Wait();
  EXPECT_EQ(verdict.code, ExitCode::kRetryable);
  EXPECT_EQ(verdict.task, "worker:1");
  EXPECT_EQ(
      std::string(Message(crew.result(0))),
      "ROOT CAUSE: worker 1 on host host2 (step 12, forward): lost: its connection broke and its "
      "port refuses connections, the process is gone; no process took its place within 0.5 s "
      "(timeouts.rejoin)");
  EXPECT_EQ(
      std::string(Message(crew.result(1))),
      "stopped because of worker 1: lost: its connection broke and its port refuses connections, "
      "the process is gone; no process took its place within 0.5 s (timeouts.rejoin) (host host2, "
      "step 12, forward)");
}

TEST(Failure, ABrokenSessionThatDoesNotResumeIsLost) {
  TestTimes times;
  times.rejoin = std::chrono::milliseconds(500);
  TestCluster cluster(1, times);
  cluster.StartChief();
  Crew crew;
  crew.Add(cluster.member_options(0), WaitForTheEnd);
  auto victim = Member::Make(cluster.member_options(1));
  ASSERT_TRUE(victim->NextGeneration(0).ok());
  victim.reset();  // its data port still accepts connections
  crew.Join();
  EXPECT_THAT(std::string(Message(crew.result(0))), HasSubstr("was not restored within 0.5 s"));
}

TEST(Failure, AFrozenMemberIsFoundByItsSilence) {
  TestTimes times;
  times.heartbeat = std::chrono::milliseconds(1500);
  TestCluster cluster(1, times);
  cluster.StartChief();
  Crew crew;
  MemberOptions chief = cluster.member_options(0), frozen = cluster.member_options(1);
  chief.timeouts.heartbeat = frozen.timeouts.heartbeat = std::chrono::hours(1);
  frozen.timeouts.heartbeat_interval = std::chrono::hours(1);
  crew.Add(std::move(chief), FinishAfter("no heartbeat for"));
  crew.Add(std::move(frozen), FinishAfter("no heartbeat for"));
  crew.Join();
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kDone);
}

MemberDevices Gpus(std::vector<std::string> uuids) {
  return {.kind = "cuda", .uuids = std::move(uuids), .driver = "580.65"};
}
MemberDevices Cpu() { return {.kind = "cpu"}; }

// Chief and worker with these devices do not come to a generation; what both, and the verdict, say.
void ExpectClash(const MemberDevices& chief, const MemberDevices& worker,
                 const std::string& sentence) {
  TestCluster cluster(1);
  cluster.StartChief();
  Crew crew;
  for (const int rank : {0, 1}) {
    MemberOptions options = cluster.member_options(rank);
    options.held_devices = rank == 0 ? chief : worker;
    options.form = [](const collective::GroupSpec&, const std::vector<int>&,
                      const std::function<bool()>&)
        -> absl::StatusOr<std::vector<std::unique_ptr<collective::Communicator>>> {
      ADD_FAILURE() << "links were made all the same";
      return ConfigurationError("links were made");
    };
    crew.Add(std::move(options), [](Member&, Generation&) -> absl::Status {
      ADD_FAILURE() << "a generation came up";
      return absl::OkStatus();
    });
  }
  crew.Join();
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ExitCodeOf(crew.result(rank)), ExitCode::kConfiguration) << crew.result(rank);
    EXPECT_THAT(std::string(Message(crew.result(rank))), HasSubstr(sentence));
  }
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kConfiguration);
}

TEST(Failure, AGpuThatTwoMembersHoldEndsTheJobNamingBoth) {
  ExpectClash(Gpus({"GPU-1", "GPU-2"}), Gpus({"GPU-2"}),
              "chief 0 and worker 0 both hold GPU GPU-2");
}

TEST(Failure, AMemberOnTheCpuBesideOneOnGpusEndsTheJobNamingBoth) {
  ExpectClash(Cpu(), Gpus({"GPU-1"}),
              "worker 0 trains on CUDA devices (driver 580.65), but chief 0 on the CPU");
}

// Holds the coordinator up, with its lock.
class Stall final : public MemberEvents {
 public:
  explicit Stall(Duration length) : length_(length) {}
  void OnAdmitted(const AdmittedMember&) override {}
  void OnLost(const TaskId&, uint64_t, const std::string&, bool) override {}
  void OnStopRequested() override { std::this_thread::sleep_for(length_); }

 private:
  const Duration length_;
};

TEST(Failure, ACoordinatorThatWasHeldUpTakesNobodyForLost) {
  constexpr Duration kSilence = std::chrono::seconds(4);
  TestCluster cluster(1);
  Stall stall(kSilence + std::chrono::seconds(1));
  std::atomic<int> lost = 0;
  CoordinatorOptions options = cluster.coordinator_options();
  options.decision.heartbeat = options.decision.suspect = kSilence;
  options.events = &stall;
  options.on_lost = [&lost](const MemberLossReport&) { ++lost; };
  ASSERT_TRUE(cluster.StartChief(std::move(options)).ok());
  absl::Notification over;
  std::atomic<int> running = 0;
  Crew crew;
  for (int rank : {0, 1}) {
    MemberOptions member = cluster.member_options(rank);
    member.timeouts.heartbeat_interval = member.timeouts.heartbeat = std::chrono::hours(1);
    crew.Add(std::move(member), [&](Member& m, Generation& generation) {
      m.SetPhase(Phase::kForward, 7);
      ++running;
      over.WaitForNotification();
      return FinishAt7(m, generation);
    });
  }
  EXPECT_TRUE(Becomes([&] { return running == 2; }));
  cluster.coordinator().RequestStop();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // some decisions
  over.Notify();
  crew.Join();
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kDone);
}

TEST(Failure, APhaseDeadlineNamesTheOneThatIsWaitedFor) {
  TestTimes times;
  times.rejoin = std::chrono::milliseconds(500);
  TestCluster cluster(1, times);
  CoordinatorOptions options = cluster.coordinator_options();
  options.decision.phase[static_cast<int>(Phase::kReduce)] = std::chrono::milliseconds(600);
  ASSERT_TRUE(cluster.StartChief(std::move(options)).ok());
  Crew crew;
  crew.Add(cluster.member_options(0), WaitForTheEnd);
  crew.Add(cluster.member_options(1), [](Member& member, Generation& generation) {
    member.SetPhase(Phase::kData, 12);  // its input never comes
    return member.Explain(generation.replicas[0]->Barrier()->Wait());
  });
  crew.Join();
  const Verdict verdict = cluster.coordinator().Wait();
  EXPECT_EQ(verdict.task, "worker:0");
  EXPECT_EQ(verdict.code, ExitCode::kRetryable);
  EXPECT_THAT(verdict.message, HasSubstr("while chief 0 waits for it in 'reduce'"));
  EXPECT_EQ(ExitCodeOf(crew.result(1)), ExitCode::kRetryable);
  EXPECT_THAT(std::string(Message(crew.result(1))), HasSubstr("while chief 0 waits for it"));
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
  EXPECT_THAT(Describe(verdict), HasSubstr("(step 3, forward): loss is not [batch]"));
  EXPECT_EQ(ExitCodeOf(crew.result(0)), ExitCode::kProgramFailed);
  EXPECT_THAT(crew.member(1).FinalLine(crew.result(1)),
              HasSubstr("stopped because of worker 1: loss is not [batch]"));
  EXPECT_EQ(crew.member(2).FinalLine(crew.result(2)), "ROOT CAUSE: " + Describe(verdict));
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
  TestTimes times;
  times.rejoin = std::chrono::milliseconds(500);
  TestCluster cluster(2, times);
  CoordinatorOptions options = cluster.coordinator_options();
  options.decision.root_cause_wait = kLimit;
  ASSERT_TRUE(cluster.StartChief(std::move(options)).ok());
  Crew crew;
  absl::Notification reported;
  crew.Add(cluster.member_options(0), [&reported](Member& member, Generation& generation) {
    // The noise comes first: a peer's connection was reset.
    absl::Status why;
    std::thread explain([&] { why = member.Explain(PeerLost("worker:1: connection reset")); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    reported.Notify();
    explain.join();
    EXPECT_THAT(std::string(Message(why)), HasSubstr("worker 1 on host host2"));
    generation.replicas.clear();
    return member.NextGeneration(11).status();
  });
  crew.Add(cluster.member_options(1), WaitForTheEnd);
  auto victim = Member::Make(cluster.member_options(2));
  ASSERT_TRUE(victim->NextGeneration(0).ok());
  reported.WaitForNotification();
  cluster.data_port(2).Close();
  victim.reset();
  crew.Join();
  EXPECT_EQ(cluster.coordinator().Wait().task, "worker:1");
  EXPECT_THAT(std::string(Message(crew.result(0))), HasSubstr("ROOT CAUSE: worker 1"));
}

TEST(Failure, ACollectiveErrorWithoutARootCauseEndsTheGenerationOnly) {
  TestCluster cluster(1);
  CoordinatorOptions options = cluster.coordinator_options();
  options.decision.root_cause_wait = std::chrono::milliseconds(300);
  ASSERT_TRUE(cluster.StartChief(std::move(options)).ok());
  Crew crew;
  crew.Add(cluster.member_options(0), FinishAfter("10.0.0.1:5"));
  crew.Add(cluster.member_options(1), [](Member& member, Generation& generation) {
    const absl::Status over = member.Explain(PeerLost("chief:0 (10.0.0.1:5): connection reset"));
    EXPECT_THAT(std::string(Message(over)), HasSubstr("10.0.0.1:5"));
    generation.replicas.clear();
    auto next = member.NextGeneration(11);
    return next.ok() ? FinishAt7(member, *next) : next.status();
  });
  crew.Join();
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kDone);
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
  EXPECT_TRUE(ReportFailureTo(report, kLimit).ok());
  crew.Join();
  EXPECT_EQ(ExitCodeOf(crew.result(0)), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(crew.result(0))), HasSubstr("did you mean 'epochs'?"));
}

// Names of files may hold any bytes, which a protobuf string may not.
TEST(Failure, AFailureThatIsNotUtf8IsTheVerdict) {
  TestCluster cluster(1);
  cluster.StartChief();
  Crew crew;
  crew.Add(cluster.member_options(0), WaitInBarrier);
  EarlyFailure report;
  report.task = "worker:0";
  report.chief_address = cluster.address();
  report.cluster_digest = "digest-a";
  report.failure = DataError("'caf\xe9.jpg' is truncated");
  EXPECT_TRUE(ReportFailureTo(report, kLimit).ok());
  crew.Join();
  EXPECT_EQ(ExitCodeOf(crew.result(0)), ExitCode::kDataDamaged);
  EXPECT_THAT(std::string(Message(crew.result(0))),
              HasSubstr("'caf\xef\xbf\xbd.jpg' is truncated"));
}

// Reports the end of worker 0, like the process that started it.
proto::FailureReply ReportEndOfWorker0(const TestCluster& cluster) {
  proto::FailureReport report;
  report.set_protocol(kControlProtocol);
  report.set_task("worker:0");
  report.set_exit_code(static_cast<int>(ExitCode::kRetryable));
  report.set_message("was killed by SIGKILL, and nobody starts it again");
  report.set_gone(true);
  proto::FailureReply reply;
  const grpc::Status status = proto::Coordinator::NewStub(*rpc::MakeChannel(cluster.address()))
                                  ->ReportFailure(rpc::WithDeadline(kLimit).get(), report, &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return reply;
}

TEST(Failure, ADeathThatNobodyMakesGoodIsTheVerdictAtOnce) {
  for (const bool reported_first : {true, false}) {
    TestTimes times;
    times.resume = times.rejoin = std::chrono::minutes(1);  // not what ends the job
    TestCluster cluster(1, times);
    cluster.StartChief();
    Crew crew;
    crew.Add(cluster.member_options(0), WaitInBarrier);
    MemberOptions options = cluster.member_options(1);
    // A member that sends something a second after its end was reported counts as alive. This one
    // sends no heartbeats.
    options.timeouts.heartbeat_interval = options.timeouts.heartbeat = std::chrono::hours(1);
    auto victim = Member::Make(std::move(options));
    ASSERT_TRUE(victim->NextGeneration(0).ok());
    // The report may arrive before the coordinator sees that the session broke.
    if (reported_first) {
      const proto::FailureReply reply = ReportEndOfWorker0(cluster);
      EXPECT_FALSE(reply.accepted());
      EXPECT_EQ(reply.reason(), "worker 0 has a session: its end counts once that has broken");
    }
    victim.reset();
    if (!reported_first) (void)ReportEndOfWorker0(cluster);
    crew.Join();
    EXPECT_EQ(ExitCodeOf(crew.result(0)), ExitCode::kRetryable);
    EXPECT_THAT(
        std::string(Message(crew.result(0))),
        ContainsRegex(
            "worker 0 on host host1 .*nobody starts it again; last heard of in step [0-9]+"));
  }
}

TEST(Failure, ADeathOfOneThatLivesEndsNothing) {
  TestTimes times;
  times.resume = kLimit;
  TestCluster cluster(1, times);
  cluster.StartChief();
  enum { kGoOn, kBreak, kBroken };
  std::atomic<int> link = kGoOn;
  absl::Notification begun, all_steps_done;
  MemberOptions options = cluster.member_options(1);
  options.session_fault = [&link] {
    int asked = kBreak;
    return link.compare_exchange_strong(asked, kBroken) ? membership::SessionFault::kBroken
                                                        : membership::SessionFault::kNone;
  };
  Crew crew;
  crew.Add(cluster.member_options(0), FinishAt7);
  crew.Add(std::move(options), [&](Member& member, Generation& generation) {
    begun.Notify();
    all_steps_done.WaitForNotification();
    return FinishAt7(member, generation);
  });
  begun.WaitForNotification();
  const muster::testing::LoggedLines lines;
  EXPECT_FALSE(ReportEndOfWorker0(cluster).accepted());
  // Heard of for long enough, it may also lose its session for a moment.
  EXPECT_TRUE(lines.Await("worker 0 is alive, although a report said", kLimit));
  link = kBreak;
  EXPECT_TRUE(Becomes([&] { return link == kBroken; }));
  all_steps_done.Notify();
  crew.Join();
  EXPECT_TRUE(crew.result(1).ok()) << Message(crew.result(1));
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kDone);
}

TEST(Failure, AFailureOfSomebodyElseIsNotTheVerdict) {
  TestCluster cluster(1);
  cluster.StartChief();
  EarlyFailure report;
  report.task = "worker:0";
  report.chief_address = cluster.address();
  report.cluster_digest = "digest-b";
  report.failure = ConfigurationError("nonsense");
  EXPECT_FALSE(ReportFailureTo(report, kLimit).ok());
  report.cluster_digest = "digest-a";
  report.task = "evaluator:0";
  EXPECT_FALSE(ReportFailureTo(report, kLimit).ok());
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
}  // namespace muster::chief::testing
