// Members that are independent of each other, over real sessions.
#include <gmock/gmock.h>

#include "chief/coordinator/member_events.h"
#include "common/cluster/protocol.h"
#include "common/rpc/channel.h"
#include "proto/coordinator.grpc.pb.h"
#include "tests/unit/coordinator/harness.h"

namespace muster::chief {
namespace {

using membership::Member;
using testing::Crew;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestCluster;
using ::testing::UnorderedElementsAre;

constexpr Duration kPatience = std::chrono::seconds(20);

// The events in order: "in worker:0", "again ps:0", "lost worker:1" (or "ended"), "stop".
class RecordedEvents final : public MemberEvents {
 public:
  void OnAdmitted(const AdmittedMember& m) override {
    Add((m.again ? "again " : "in ") + m.task.ToString());
  }
  void OnLost(const TaskId& task, uint64_t, const std::string&, bool ended) override {
    Add((ended ? "ended " : "lost ") + task.ToString());
  }
  void OnStopRequested() override { Add("stop"); }

  std::vector<std::string> Wait(size_t count) {
    absl::MutexLock lock(&mu_);
    const absl::Time deadline = absl::Now() + absl::FromChrono(kPatience);
    while (events_.size() < count)
      if (wake_.WaitWithDeadline(&mu_, deadline)) break;
    return events_;
  }
  std::vector<std::string> WaitAndClear(size_t count) {
    std::vector<std::string> events = Wait(count);
    absl::MutexLock lock(&mu_);
    events_.clear();
    return events;
  }

 private:
  void Add(std::string what) {
    absl::MutexLock lock(&mu_);
    events_.push_back(std::move(what));
    wake_.SignalAll();
  }
  absl::Mutex mu_;
  absl::CondVar wake_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mu_);
};

class IndependentControlTest : public ::testing::Test {
 protected:
  // worker:0, worker:1 and ps:0; the chief's task is none of them.
  explicit IndependentControlTest(testing::TestTimes times = {}) : cluster_(2, times) {}

  CoordinatorOptions Options() {
    CoordinatorOptions options = cluster_.coordinator_options();
    for (int i = 0; i < 3; ++i) options.members[i].task = *ParseTaskId(TaskOf(i));
    options.decision.independent = true;
    options.events = &events_;
    options.own_member = -1;
    return options;
  }
  static std::string TaskOf(int i) { return i < 2 ? "worker:" + std::to_string(i) : "ps:0"; }
  membership::MemberOptions OptionsOf(int i) {
    membership::MemberOptions options = cluster_.member_options(i);
    options.task = TaskOf(i);
    options.is_chief = false;
    return options;
  }
  // Stays until the job's end.
  static absl::Status Stay(Member& member, Generation& generation) {
    if (generation.job_done) return absl::OkStatus();
    EXPECT_EQ(generation.world_size(), 1);
    while (true) {
      member.SetPhase(Phase::kData, 3);
      const absl::Status over = member.WaitOver();
      if (!absl::IsAborted(over)) return over;
      const auto next = member.NextGeneration(3);
      if (!next.ok()) return next.status();
      if (next->job_done) return absl::OkStatus();
    }
  }
  void AddAll() {
    for (int i = 0; i < 3; ++i) crew_.Add(OptionsOf(i), Stay);
  }

  TestCluster cluster_;
  RecordedEvents events_;
  Crew crew_;
};

TEST_F(IndependentControlTest, AllAreInOnceAllHaveComeAndTheVerdictEndsThem) {
  ASSERT_TRUE(cluster_.StartChief(Options()).ok());
  AddAll();
  EXPECT_THAT(events_.Wait(3), UnorderedElementsAre("in worker:0", "in worker:1", "in ps:0"));
  cluster_.coordinator().End({ExitCode::kDone, "", "", -1, Phase::kEnding, ""});
  crew_.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(crew_.result(i).ok()) << crew_.result(i);
}

TEST_F(IndependentControlTest, ALossIsReportedAndANewProcessIsAdmittedWhileTheOthersStay) {
  ASSERT_TRUE(cluster_.StartChief(Options()).ok());
  crew_.Add(OptionsOf(0), Stay);
  crew_.Add(OptionsOf(2), Stay);
  {
    const auto doomed = Member::Make(OptionsOf(1));
    const auto generation = doomed->NextGeneration(0);
    ASSERT_TRUE(generation.ok()) << generation.status();
    EXPECT_THAT(events_.WaitAndClear(3),
                UnorderedElementsAre("in worker:0", "in worker:1", "in ps:0"));
    cluster_.data_port(1).Close();
  }
  EXPECT_THAT(events_.WaitAndClear(1), ElementsAre("ended worker:1"));
  crew_.Add(OptionsOf(1), Stay);
  EXPECT_THAT(events_.WaitAndClear(1), ElementsAre("in worker:1"));
  cluster_.coordinator().End({ExitCode::kDone, "", "", -1, Phase::kEnding, ""});
  crew_.Join();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(crew_.result(i).ok()) << crew_.result(i);
}

TEST_F(IndependentControlTest, ARestartedChiefFindsItsMembersAgain) {
  ASSERT_TRUE(cluster_.StartChief(Options()).ok());
  AddAll();
  events_.WaitAndClear(3);
  cluster_.StopChief();
  CoordinatorOptions options = Options();
  options.admission.term = 2;
  options.decision.stateless_wait = kPatience;
  ASSERT_TRUE(cluster_.StartChief(std::move(options)).ok());
  EXPECT_THAT(events_.WaitAndClear(3),
              UnorderedElementsAre("again worker:0", "again worker:1", "again ps:0"));
  cluster_.coordinator().End({ExitCode::kDone, "", "", -1, Phase::kEnding, ""});
  crew_.Join();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(crew_.result(i).ok()) << crew_.result(i);
}

// A member's session by hand.
class BareSession {
 public:
  BareSession(const TestCluster& cluster, const proto::Hello& hello)
      : stub_(proto::Coordinator::NewStub(*rpc::MakeChannel(cluster.address()))),
        stream_(stub_->Session(&context_)) {
    proto::MemberMessage message;
    *message.mutable_hello() = hello;
    proto::CoordinatorMessage answer;
    if (stream_->Write(message) && stream_->Read(&answer)) welcome_ = answer.welcome();
  }
  ~BareSession() {
    context_.TryCancel();
    (void)stream_->Finish();
  }
  void Wait() {
    proto::MemberMessage message;
    message.mutable_report()->set_waiting(true);
    EXPECT_TRUE(stream_->Write(message));
  }
  // "": refused.
  const std::string& run_id() const { return welcome_.run_id(); }

 private:
  grpc::ClientContext context_;
  const std::unique_ptr<proto::Coordinator::Stub> stub_;
  const std::unique_ptr<grpc::ClientReaderWriter<proto::MemberMessage, proto::CoordinatorMessage>>
      stream_;
  proto::Welcome welcome_;
};

// worker:1 had given the chief up and has come again, and is not in yet.
class ComingAgainTest : public IndependentControlTest {
 protected:
  explicit ComingAgainTest(testing::TestTimes times = {}) : IndependentControlTest(times) {}
  void SetUp() override {
    const CoordinatorOptions options = Options();
    ASSERT_TRUE(cluster_.StartChief(options).ok());
    crew_.Add(OptionsOf(0), Stay);
    crew_.Add(OptionsOf(2), Stay);
    hello_.set_protocol(kControlProtocol);
    hello_.set_task("worker:1");
    hello_.set_incarnation(77);
    hello_.set_cluster_digest(options.admission.cluster_digest);
    hello_.set_job(options.admission.job);
    hello_.set_data_address(cluster_.data_port(1).address());
    hello_.set_num_replicas(1);
    session_ = std::make_unique<BareSession>(cluster_, hello_);
    session_->Wait();
    EXPECT_THAT(events_.WaitAndClear(3),
                UnorderedElementsAre("in worker:0", "in worker:1", "in ps:0"));
    hello_.set_run_id(session_->run_id());
    session_ = std::make_unique<BareSession>(cluster_, hello_);
    ASSERT_NE(session_->run_id(), "");
  }
  void TearDown() override {
    session_.reset();
    cluster_.coordinator().End({ExitCode::kDone, "", "", -1, Phase::kEnding, ""});
    crew_.Join();
  }

  proto::Hello hello_;
  std::unique_ptr<BareSession> session_;
};

TEST_F(ComingAgainTest, ItsLossIsReported) {
  cluster_.data_port(1).Close();
  session_.reset();
  EXPECT_THAT(events_.WaitAndClear(1), ElementsAre("ended worker:1"));
}

TEST_F(ComingAgainTest, TheEndOfItsProcessIsReportedOnceMore) {
  session_.reset();
  EXPECT_THAT(events_.WaitAndClear(1), ElementsAre("lost worker:1"));
  proto::FailureReport report;
  report.set_task("worker:1");
  report.set_gone(true);
  report.set_message("was killed, and is not started again");
  proto::FailureReply reply;
  const auto stub = proto::Coordinator::NewStub(*rpc::MakeChannel(cluster_.address()));
  const auto context = rpc::WithDeadline(kPatience);
  ASSERT_TRUE(stub->ReportFailure(context.get(), report, &reply).ok());
  EXPECT_THAT(events_.WaitAndClear(1), ElementsAre("ended worker:1"));
}

// The chief does not give up the session that breaks before the other process has come.
class ReplacedTest : public ComingAgainTest {
 protected:
  ReplacedTest() : ComingAgainTest(testing::TestTimes(testing::kLimit)) {}
};

TEST_F(ReplacedTest, ItsReplacementIsReported) {
  session_.reset();
  hello_.clear_run_id();
  hello_.set_incarnation(78);
  const MonotonicTime deadline = Clock::now() + kPatience;
  // Refused, as long as the chief has not seen that the other one's session is over.
  while (session_ == nullptr || session_->run_id().empty()) {
    ASSERT_LT(Clock::now(), deadline);
    session_ = std::make_unique<BareSession>(cluster_, hello_);
  }
  EXPECT_THAT(events_.Wait(1), ElementsAre("ended worker:1"));
  session_->Wait();
  EXPECT_THAT(events_.WaitAndClear(2), ElementsAre("ended worker:1", "in worker:1"));
}

TEST_F(IndependentControlTest, ARequestToStopAtOneMemberIsReported) {
  ASSERT_TRUE(cluster_.StartChief(Options()).ok());
  AddAll();
  events_.WaitAndClear(3);
  crew_.member(2).RequestStop();
  EXPECT_THAT(events_.WaitAndClear(1), ElementsAre("stop"));
  cluster_.coordinator().End({ExitCode::kPreempted, "", "", -1, Phase::kEnding, "stopped"});
  crew_.Join();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ExitCodeOf(crew_.result(i)), ExitCode::kPreempted);
}

TEST_F(IndependentControlTest, AFailureOfOneEndsTheJobForAll) {
  ASSERT_TRUE(cluster_.StartChief(Options()).ok());
  crew_.Add(OptionsOf(0), Stay);
  crew_.Add(OptionsOf(2), Stay);
  crew_.Add(OptionsOf(1), [](Member& member, Generation&) {
    const absl::Status failure = ProgramError("a bug");
    member.ReportFailure(failure);
    return failure;
  });
  crew_.Join();
  EXPECT_THAT(std::string(Message(crew_.result(0))), HasSubstr("a bug"));
  const Verdict verdict = cluster_.coordinator().Wait();
  EXPECT_EQ(verdict.code, ExitCode::kProgramFailed);
  EXPECT_EQ(verdict.task, "worker:1");
}

}  // namespace
}  // namespace muster::chief
