// Joining, forming and ending with a coordinator and its members in one process.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "absl/synchronization/notification.h"
#include "common/cluster/protocol.h"
#include "common/rpc/channel.h"
#include "proto/coordinator.grpc.pb.h"
#include "tests/unit/coordinator/harness.h"

namespace muster::chief::testing {
namespace {

using collective::Communicator;
using collective::GroupSpec;
using membership::Member;
using membership::MemberOptions;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Control, MembersFormAGenerationAndEnd) {
  TestCluster cluster(2);
  cluster.StartChief();
  Crew crew;
  std::atomic<int> world = 0;
  for (int rank = 0; rank < 3; ++rank) {
    MemberOptions options = cluster.member_options(rank);
    options.num_replicas = rank + 1;
    crew.Add(std::move(options), [&world, rank](Member& member, Generation& generation) {
      EXPECT_EQ(generation.rank, rank);
      EXPECT_EQ(generation.id, (1ull << 32) | 1);
      EXPECT_EQ(generation.run_id, "run-a");
      EXPECT_EQ(generation.replicas_per_rank, (std::vector<int>{1, 2, 3}));
      EXPECT_EQ(generation.replicas.size(), static_cast<size_t>(rank + 1));
      EXPECT_EQ(generation.replicas_on_host, 6);
      world += generation.world_size();
      return FinishAt7(member, generation);
    });
  }
  crew.Join();
  const Verdict verdict = cluster.coordinator().Wait();
  EXPECT_EQ(verdict.code, ExitCode::kDone) << verdict.message;
  EXPECT_EQ(world, 9);
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(crew.result(rank).ok());
  EXPECT_EQ(crew.member(1).FinalLine(crew.result(1)), "");
}

TEST(Control, AnyStartOrderWithTheChiefLast) {
  TestCluster cluster(2);
  Crew crew;
  for (int rank : {2, 1, 0}) crew.Add(cluster.member_options(rank), FinishAt7);
  // The members have met a refused connection by the time the chief is there.
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  cluster.StartChief();
  crew.Join();
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kDone);
}

TEST(Control, JoinTellsTheChiefsJob) {
  TestCluster cluster(1);
  cluster.StartChief();
  auto member = Member::Make(cluster.member_options(1));
  const auto welcome = member->Join();
  ASSERT_TRUE(welcome.ok()) << Message(welcome.status());
  EXPECT_EQ(welcome->run_id, "run-a");
  EXPECT_EQ(welcome->job, "job-a");
  EXPECT_EQ(welcome->term, 1u);
}

TEST(Control, AMemberThatNeverReachesTheChiefSaysWhy) {
  TestTimes times;
  times.join = std::chrono::milliseconds(600);
  TestCluster cluster(1, times);
  auto member = Member::Make(cluster.member_options(1));
  const auto generation = member->NextGeneration(0);
  ASSERT_FALSE(generation.ok());
  EXPECT_EQ(ExitCodeOf(generation.status()), ExitCode::kRetryable);
  EXPECT_THAT(std::string(Message(generation.status())),
              HasSubstr(fmt::format("could not reach the chief chief:0 ({}) for 0.6 s "
                                    "(timeouts.join): connection refused",
                                    cluster.address())));
}

TEST(Control, MissingMembersAreNamedWhenTheJoinDeadlinePasses) {
  TestTimes times;
  times.join = std::chrono::seconds(3);  // in which the two others come
  TestCluster cluster(2, times);
  cluster.StartChief();
  Crew crew;
  crew.Add(cluster.member_options(0), FinishAt7);
  crew.Add(cluster.member_options(1), FinishAt7);
  crew.Join();
  const Verdict verdict = cluster.coordinator().Wait();
  EXPECT_EQ(verdict.code, ExitCode::kRetryable);
  EXPECT_THAT(verdict.message,
              HasSubstr("2/3 joined, missing worker 1 (host2:2222, never connected)"));
  EXPECT_THAT(std::string(Message(crew.result(0))), StartsWith("ROOT CAUSE: not all members"));
  EXPECT_THAT(std::string(Message(crew.result(1))), StartsWith("stopped: not all members"));
}

TEST(Control, AnotherClusterIsRefusedWithTheField) {
  TestCluster cluster(1);
  cluster.StartChief();
  Crew crew;
  crew.Add(cluster.member_options(0), FinishAt7);
  MemberOptions options = cluster.member_options(1);
  options.cluster_digest = "digest-b";
  crew.Add(std::move(options), FinishAt7);
  crew.Join();
  EXPECT_EQ(ExitCodeOf(crew.result(1)), ExitCode::kConfiguration);
  EXPECT_EQ(std::string(Message(crew.result(1))),
            "ROOT CAUSE: worker 0 on host host1: worker 0 was started with another cluster than "
            "the chief: they differ in cluster.worker[1]; give all tasks the same TF_CONFIG "
            "cluster");
  // The job could never start: it ends at once, with the same code.
  EXPECT_EQ(ExitCodeOf(crew.result(0)), ExitCode::kConfiguration);
  EXPECT_EQ(cluster.coordinator().Wait().task, "worker:0");
}

TEST(Control, AnotherJobIsRefusedWithTheKey) {
  TestCluster cluster(1);
  cluster.StartChief();
  Crew crew;
  crew.Add(cluster.member_options(0), FinishAt7);
  MemberOptions options = cluster.member_options(1);
  options.job = "job-b";
  crew.Add(std::move(options), FinishAt7);
  crew.Join();
  EXPECT_EQ(ExitCodeOf(crew.result(1)), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(crew.result(1))), HasSubstr("differ in 'learning_rate'"));
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kConfiguration);
}

TEST(Control, ATaskThatIsNoMemberIsRefusedAndHarmsNobody) {
  TestCluster cluster(1);
  cluster.StartChief();
  MemberOptions options = cluster.member_options(1);
  options.task = "worker:7";
  Crew stray;
  stray.Add(std::move(options), FinishAt7);
  stray.Join();
  EXPECT_EQ(ExitCodeOf(stray.result(0)), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(stray.result(0))),
              HasSubstr("worker 7 is not a member of this cluster's training"));
  Crew crew;
  for (int rank : {0, 1}) crew.Add(cluster.member_options(rank), FinishAt7);
  crew.Join();
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kDone);
}

TEST(Control, TheSameTaskTwiceWaitsAndHarmsNobody) {
  TestCluster cluster(1);
  cluster.StartChief();
  MemberOptions options = cluster.member_options(1);
  options.host.pid = 4711;
  auto first = Member::Make(std::move(options));
  ASSERT_TRUE(first->Join().ok());
  options = cluster.member_options(1);
  options.timeouts.join = std::chrono::milliseconds(700);
  auto second = Member::Make(std::move(options));
  const auto refused = second->Join();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(ExitCodeOf(refused.status()), ExitCode::kRetryable);
  EXPECT_THAT(std::string(Message(refused.status())),
              HasSubstr("for 0.7 s (timeouts.join): another process is worker 0 already, on host "
                        "host1 (pid 4711)"));
  Crew crew;
  crew.Add(cluster.member_options(0), FinishAt7);
  const auto generation = first->NextGeneration(0);
  ASSERT_TRUE(generation.ok()) << Message(generation.status());
  EXPECT_TRUE(first->Finish(7, absl::OkStatus()).ok());
}

// A pod ends in order while its successor starts.
TEST(Control, ANewProcessWaitsForTheOldOneToLeaveAndTakesItsPlace) {
  TestCluster cluster(1);
  cluster.StartChief();
  auto old = Member::Make(cluster.member_options(1));
  ASSERT_TRUE(old->Join().ok());
  Crew crew;
  for (int rank : {0, 1}) crew.Add(cluster.member_options(rank), FinishAt7);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(crew.member(1).verdict()) << crew.member(1).verdict()->message;
  cluster.data_port(1).Close();
  old.reset();
  crew.Join();
  EXPECT_TRUE(crew.result(1).ok()) << Message(crew.result(1));
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kDone);
}

// The old process is part of a job that is being stopped. The process of the next start gets no
// verdict of this job.
TEST(Control, AProcessOfTheNextStartDoesNotTakeTheEndOfAStopForItsOwn) {
  TestCluster cluster(1);
  cluster.StartChief();
  absl::Notification come, stopped;
  auto stop = [&](Member& member, Generation& generation) {
    if (generation.rank == 1) stopped.WaitForNotification();
    return member.Finish(9, Preempted("stopped after step 9, as asked"));
  };
  Crew crew;
  for (int rank : {0, 1}) crew.Add(cluster.member_options(rank), stop);
  while (!crew.member(1).JobEnded() && !come.HasBeenNotified()) {
    const auto stub = proto::Coordinator::NewStub(*rpc::MakeChannel(cluster.address()));
    proto::StatusReply reply;
    ASSERT_TRUE(stub->Status(rpc::WithDeadline(kLimit).get(), {}, &reply).ok());
    if (reply.stage() == "running") come.Notify();
  }
  Crew next;
  next.Add(cluster.member_options(1), FinishAt7);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  stopped.Notify();
  crew.Join();
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kPreempted);
  cluster.StopChief();
  EXPECT_FALSE(next.member(0).verdict()) << next.member(0).verdict()->message;
  CoordinatorOptions successor = cluster.coordinator_options();
  successor.admission.term = 2;
  ASSERT_TRUE(cluster.StartChief(std::move(successor)).ok());
  next.Add(cluster.member_options(0), FinishAt7);
  next.Join();
  EXPECT_TRUE(next.result(0).ok()) << Message(next.result(0));
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kDone);
}

TEST(Control, ARestartedTaskTakesItsPlaceBeforeTheFirstGeneration) {
  TestCluster cluster(1);
  cluster.StartChief();
  {
    auto killed = Member::Make(cluster.member_options(1));
    ASSERT_TRUE(killed->Join().ok());
  }
  Crew crew;
  for (int rank : {0, 1}) crew.Add(cluster.member_options(rank), FinishAt7);
  crew.Join();
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kDone);
}

TEST(Control, FormationThatFailsThriceNamesTheLink) {
  TestCluster cluster(1);
  cluster.StartChief();
  std::atomic<int> attempts = 0;
  Crew crew;
  for (int rank : {0, 1}) {
    MemberOptions options = cluster.member_options(rank);
    options.form = [&attempts, rank](const GroupSpec& spec, const std::vector<int>& replicas,
                                     const std::function<bool()>& aborted)
        -> absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> {
      if (rank == 0) return FakeForm(spec, replicas, aborted);
      ++attempts;
      return PeerLost("chief:0 <-> worker:0 (10.0.0.4:5123): connection refused");
    };
    crew.Add(std::move(options), FinishAt7);
  }
  crew.Join();
  EXPECT_EQ(attempts, 3);
  const Verdict verdict = cluster.coordinator().Wait();
  EXPECT_EQ(verdict.code, ExitCode::kRetryable);
  EXPECT_EQ(verdict.message,
            "3 formations failed; the last one: chief:0 <-> worker:0 (10.0.0.4:5123): connection "
            "refused");
}

TEST(Control, FormationIsTriedAgainWithAHigherGeneration) {
  TestCluster cluster(1);
  cluster.StartChief();
  std::atomic<int> attempts = 0;
  Crew crew;
  for (int rank : {0, 1}) {
    MemberOptions options = cluster.member_options(rank);
    options.form = [&attempts, rank](const GroupSpec& spec, const std::vector<int>& replicas,
                                     const std::function<bool()>& aborted)
        -> absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> {
      if (rank == 1 && ++attempts < 3) return PeerLost("a link");
      return FakeForm(spec, replicas, aborted);
    };
    crew.Add(std::move(options), [](Member& member, Generation& generation) {
      EXPECT_EQ(generation.id, (1ull << 32) | 3);
      return FinishAt7(member, generation);
    });
  }
  crew.Join();
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kDone);
}

TEST(Control, NoMemberMissesAFormationThatIsOverAtOnce) {
  TestCluster cluster(2);
  CoordinatorOptions options = cluster.coordinator_options();
  options.decision.max_failed_formations = 100;
  ASSERT_TRUE(cluster.StartChief(std::move(options)).ok());
  std::atomic<int> attempts = 0;
  Crew crew;
  for (int rank : {0, 1, 2}) {
    MemberOptions member = cluster.member_options(rank);
    member.form = [&attempts, rank](const GroupSpec& spec, const std::vector<int>& replicas,
                                    const std::function<bool()>& aborted)
        -> absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> {
      if (rank == 1 && ++attempts < 100) return PeerLost("a link");
      return FakeForm(spec, replicas, aborted);
    };
    crew.Add(std::move(member), FinishAt7);
  }
  crew.Join();
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kDone);
}

TEST(Control, AStopRequestedAnywhereReachesAll) {
  TestCluster cluster(1);
  cluster.StartChief();
  auto until_stopped = [](Member& member, Generation& generation) {
    if (generation.rank == 1) member.RequestStop();
    const MonotonicTime give_up = Clock::now() + kLimit;
    while (!member.StopRequested() && Clock::now() < give_up)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(member.StopRequested());
    return member.Finish(9, Preempted("stopped after step 9, as asked"));
  };
  Crew crew;
  for (int rank : {0, 1}) crew.Add(cluster.member_options(rank), until_stopped);
  crew.Join();
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kPreempted);
  EXPECT_EQ(ExitCodeOf(crew.result(0)), ExitCode::kPreempted);
  EXPECT_EQ(crew.member(1).FinalLine(crew.result(1)), "stopped after step 9, as asked");
}

TEST(Control, AStopWhileMembersAreAwaitedEndsAllOfThem) {
  TestCluster cluster(2);
  cluster.StartChief();
  Crew crew;
  for (int rank : {0, 1}) crew.Add(cluster.member_options(rank), FinishAt7);
  ASSERT_TRUE(crew.member(1).Join().ok());  // One whose first attempt fails would end alone.
  crew.member(1).RequestStop();
  crew.Join();
  for (int i : {0, 1}) EXPECT_EQ(ExitCodeOf(crew.result(i)), ExitCode::kPreempted);
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kPreempted);
}

TEST(Control, AStopWhileTheChiefIsAwaitedEndsTheMember) {
  TestCluster cluster(1);
  Crew crew;
  crew.Add(cluster.member_options(1), FinishAt7);
  crew.member(0).RequestStop();
  crew.Join();
  EXPECT_EQ(ExitCodeOf(crew.result(0)), ExitCode::kPreempted);
}

TEST(Control, StatusShowsWhoDoesWhat) {
  TestCluster cluster(1);
  cluster.StartChief();
  auto member = Member::Make(cluster.member_options(1));
  ASSERT_TRUE(member->Join().ok());
  const auto stub = proto::Coordinator::NewStub(*rpc::MakeChannel(cluster.address()));
  proto::StatusReply reply;
  const auto status = stub->Status(rpc::WithDeadline(kLimit).get(), {}, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.stage(), "joining");
  ASSERT_EQ(reply.members_size(), 2);
  EXPECT_FALSE(reply.members(0).joined());
  EXPECT_TRUE(reply.members(1).joined());
  EXPECT_EQ(reply.members(1).phase(), "starting");
  EXPECT_THAT(reply.roster(), HasSubstr("missing chief 0"));

  grpc::ClientContext without_deadline;
  const auto refused = stub->Status(&without_deadline, {}, &reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("without a deadline"));
}

TEST(Control, EventsTellWhoJoinedAndHowTheJobEnds) {
  TestCluster cluster(1);
  CoordinatorOptions options = cluster.coordinator_options();
  absl::Mutex mu;
  std::vector<proto::RunEvent> events;
  options.on_event = [&](const proto::RunEvent& event) {
    absl::MutexLock lock(&mu);
    events.push_back(event);
  };
  options.describe = [](proto::StatusReply* reply) { reply->mutable_progress()->set_step(7); };
  ASSERT_TRUE(cluster.StartChief(std::move(options)).ok());
  Crew crew;
  for (int rank : {0, 1}) crew.Add(cluster.member_options(rank), FinishAt7);
  crew.Join();
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kDone);
  EXPECT_EQ(cluster.coordinator().Describe().progress().step(), 7);
  cluster.StopChief();
  absl::MutexLock lock(&mu);
  ASSERT_EQ(events.size(), 4u);
  for (int i : {0, 1}) {
    EXPECT_EQ(events[i].kind(), proto::RunEvent::JOINED);
    EXPECT_THAT(events[i].text(), HasSubstr(" joined from host "));
  }
  EXPECT_NE(events[0].task(), events[1].task());
  EXPECT_EQ(events[2].kind(), proto::RunEvent::GENERATION);
  EXPECT_EQ(events[2].text(), "generation 1: 2 members, 2 replicas");
  EXPECT_EQ(events[3].kind(), proto::RunEvent::VERDICT);
  EXPECT_EQ(events[3].text(), "the job is complete");
}

TEST(Control, ASessionWithoutAHelloEnds) {
  TestCluster cluster(1);
  CoordinatorOptions options = cluster.coordinator_options();
  options.hello = std::chrono::milliseconds(200);
  ASSERT_TRUE(cluster.StartChief(std::move(options)).ok());
  const auto stub = proto::Coordinator::NewStub(*rpc::MakeChannel(cluster.address()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const auto stream = stub->Session(&context);
  proto::CoordinatorMessage message;
  EXPECT_FALSE(stream->Read(&message));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_message(), "a session without a Hello for 0.2 s");
}

// Damaged, or made up: going above it would use up the generations that there are, or wrap.
TEST(Control, ANumberThatNoRunHasReachedIsRefusedAndHarmsNobody) {
  TestCluster cluster(2);
  cluster.StartChief();
  const auto stub = proto::Coordinator::NewStub(*rpc::MakeChannel(cluster.address()));
  for (const uint64_t term :
       {uint64_t{0xffffffff}, uint64_t{0xfffffffe}, uint64_t{1} << 31, uint64_t{1'000'002}}) {
    for (const bool in_it : {false, true}) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
      const auto stream = stub->Session(&context);
      proto::MemberMessage message;
      proto::Hello& hello = *message.mutable_hello();
      hello.set_protocol(kControlProtocol);
      hello.set_task("worker:1");
      hello.set_incarnation(7);
      hello.set_run_id("run-a");
      hello.set_cluster_digest("digest-a");
      hello.set_job("job-a");
      in_it ? hello.set_generation(term << 32 | 1) : hello.set_highest_generation(term << 32 | 1);
      hello.set_generation_size(0x7fffffff);
      ASSERT_TRUE(stream->Write(message));
      proto::CoordinatorMessage answer;
      ASSERT_TRUE(stream->Read(&answer));
      ASSERT_TRUE(answer.has_refusal()) << answer.ShortDebugString();
      EXPECT_EQ(answer.refusal().exit_code(), static_cast<int>(ExitCode::kRetryable));
      EXPECT_EQ(
          answer.refusal().message(),
          fmt::format("worker 1 reports a generation of the chief's term {}, and this is term "
                      "1: no run has had so many chiefs; restart it",
                      term));
      EXPECT_TRUE(stream->Finish().ok());
    }
  }
  Crew crew;
  std::atomic<uint64_t> generation = 0;
  for (int rank = 0; rank < 3; ++rank)
    crew.Add(cluster.member_options(rank), [&](Member& member, Generation& formed) {
      generation = formed.id;
      return FinishAt7(member, formed);
    });
  crew.Join();
  EXPECT_EQ(cluster.coordinator().Wait().code, ExitCode::kDone);
  EXPECT_EQ(generation >> 32, 1u);
}

TEST(Control, ASecondCoordinatorOnThePortIsAConfigurationError) {
  TestCluster cluster(1);
  cluster.StartChief();
  TestCluster other(1);
  CoordinatorOptions options = other.coordinator_options();
  options.server.address = cluster.address();
  options.server.bind_timeout = std::chrono::milliseconds(300);
  const absl::Status status = other.StartChief(std::move(options));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(status)), HasSubstr(cluster.address()));
}

}  // namespace
}  // namespace muster::chief::testing
