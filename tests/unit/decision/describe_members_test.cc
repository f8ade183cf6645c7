#include "chief/decision/describe_members.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace muster::chief {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

class DescribeMembersTest : public ::testing::Test {
 protected:
  // Makes `n` members, all in the forward phase of step 41 for 2.5 s.
  void Members(int n) {
    state_.stage = JobStage::kRunning;
    state_.generation = 1;
    for (int i = 0; i < n; ++i) {
      MemberInfo m;
      m.declared.task = i == 0 ? TaskId{} : TaskId{TaskType::kWorker, i - 1};
      m.in_generation = m.process.joined = m.process.connected = true;
      m.process.host = fmt::format("node-{}", i);
      m.process.pid = 100 + i;
      m.report.step = 41;
      m.report.phase = Phase::kForward;
      m.report.phase_since = now_ - milliseconds(2500);
      m.process.last_heard = now_;
      m.report.collectives_done = 412;
      state_.members.push_back(m);
    }
  }
  void Enter(int i, uint64_t sequence, Duration ago, std::string what = kAllReduce) {
    MemberInfo& m = state_.members[i];
    m.report.phase = Phase::kReduce;
    m.report.collective = std::move(what);
    m.report.collective_sequence = sequence;
    m.report.collective_since = m.report.phase_since = now_ - ago;
  }
  std::string Line() const { return DescribeMembers(now_, state_); }

  static constexpr char kAllReduce[] = "all_reduce(float32 x 100, sum)";
  const PausingTime now_{std::chrono::hours(1)};
  JobState state_;
};

TEST_F(DescribeMembersTest, NobodyInACollectiveIsNoLine) {
  Members(3);
  EXPECT_EQ(Line(), "");
}

TEST_F(DescribeMembersTest, SaysWhoIsInItAndWhoIsNotAndWhatThoseDo) {
  Members(3);
  Enter(0, 413, milliseconds(61200));
  Enter(1, 413, seconds(61));
  EXPECT_EQ(Line(),
            "collective 413, all_reduce(float32 x 100, sum): in it chief 0 (host node-0, pid 100, "
            "for 61.2 s), worker 0 (host node-1, pid 101, for 61.0 s); not in it worker 1 (host "
            "node-2, pid 102, step 41, forward for 2.5 s)");
  Enter(2, 413, seconds(1));
  EXPECT_THAT(Line(), Not(HasSubstr("not in it")));
}

TEST_F(DescribeMembersTest, WhoIsThroughIsNeitherInItNorOut) {
  Members(3);
  Enter(0, 413, seconds(1));
  state_.members[1].report.collectives_done = 413;
  EXPECT_THAT(Line(), Not(HasSubstr("worker 0")));
  EXPECT_THAT(Line(), HasSubstr("not in it worker 1"));
}

TEST_F(DescribeMembersTest, AFrozenMembersAgesEndWhereItWasHeardOfLast) {
  Members(2);
  Enter(0, 413, seconds(10));
  state_.members[1].process.last_heard = now_ - milliseconds(10200);
  state_.members[1].report.phase_since = now_ - milliseconds(10700);
  EXPECT_THAT(Line(), HasSubstr("forward for 0.5 s when last heard of, 10.2 s ago"));
}

TEST_F(DescribeMembersTest, WhoCameToSomethingElseIsSeen) {
  Members(2);
  Enter(0, 413, seconds(1));
  Enter(1, 413, seconds(1), "barrier()");
  EXPECT_THAT(Line(), HasSubstr("worker 0 (host node-1, pid 101, in barrier() for 1.0 s)"));
}

TEST_F(DescribeMembersTest, ManyAreCountedAndTheOutsidersListed) {
  Members(100);
  for (int i = 0; i < 100; ++i)
    if (i != 57) Enter(i, 413, seconds(1));
  EXPECT_THAT(Line(), HasSubstr(" and 91 more; not in it worker 56 (host node-57"));
  EXPECT_LT(Line().size(), 700u);
}

TEST_F(DescribeMembersTest, WhoIsNoMemberOfTheGenerationDoesNotCount) {
  Members(3);
  Enter(0, 413, seconds(1));
  Enter(2, 500, seconds(1));
  state_.members[2].in_generation = false;
  EXPECT_THAT(Line(), HasSubstr("collective 413"));
  EXPECT_THAT(Line(), Not(HasSubstr("worker 1")));
}

TEST_F(DescribeMembersTest, APhaseDeadlineNamesWhoHasNotComeAndTheOperation) {
  Members(3);
  MembershipOptions options{{.phase = {}}};
  options.phase[static_cast<int>(Phase::kReduce)] = seconds(60);
  Enter(0, 413, seconds(61));
  Enter(1, 413, seconds(10));
  // This member is in the reduce phase of the same step, too, but in an earlier operation.
  Enter(2, 412, seconds(20));
  state_.members[2].report.collectives_done = 411;
  const Decision d = Decide(now_, state_, options);
  EXPECT_EQ(d.action, Action::kAbortGeneration);
  EXPECT_TRUE(d.expel);
  EXPECT_EQ(d.verdict.task, "worker:1");
  EXPECT_THAT(d.verdict.message, HasSubstr("while chief 0 waits for it in 'reduce'"));
  EXPECT_THAT(d.verdict.message, HasSubstr("collective 413"));
  EXPECT_THAT(d.verdict.message, HasSubstr("not in it worker 1 (host node-2, pid 102, step 41"));
}

TEST_F(DescribeMembersTest, AFailedCollectiveAndAFrozenMemberSayTheSame) {
  Members(3);
  Enter(0, 413, seconds(11));
  Enter(1, 413, seconds(11));
  state_.members[0].report.collective_error =
      ReportedError{1, "worker 1 did not come", now_ - seconds(4)};
  MembershipOptions options{{.phase = {}}};
  Decision d = Decide(now_, state_, options);
  EXPECT_EQ(d.action, Action::kAbortGeneration);
  EXPECT_THAT(d.reason, HasSubstr("did not come; collective 413"));
  state_.members[0].report.collective_error.reset();
  state_.members[2].process.last_heard = now_ - seconds(11);
  d = Decide(now_, state_, options);
  EXPECT_EQ(d.action, Action::kAbortGeneration);
  EXPECT_EQ(d.member, 2);
  EXPECT_THAT(d.reason, HasSubstr("no heartbeat for 11.0 s"));
  EXPECT_THAT(d.reason, HasSubstr("not in it worker 1"));
}

TEST_F(DescribeMembersTest, TheyFollowAWholeSentenceToo) {
  Members(2);
  Enter(0, 413, seconds(11));
  state_.members[0].report.collective_error =
      ReportedError{1, "worker 0 did not come.", now_ - seconds(4)};
  EXPECT_THAT(Decide(now_, state_, {}).reason, HasSubstr("did not come; collective 413"));
}

TEST_F(DescribeMembersTest, ALostMembersStepIsTheNewestThatAnybodyKnows) {
  Members(3);
  state_.members[1].report.step = 57;
  MemberInfo& lost = state_.members[2];
  lost.process.connected = false;
  lost.process.gone = true;
  lost.process.broken_at = now_;
  lost.process.last_heard = now_ - milliseconds(700);
  const Decision d = Decide(now_, state_, {});
  EXPECT_EQ(d.verdict.step, 57);
  EXPECT_THAT(d.verdict.message, HasSubstr("last heard of in step 41"));
}

}  // namespace
}  // namespace muster::chief
