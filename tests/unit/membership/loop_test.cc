// Tests how the loop's calls and the coordinator's messages change a member's state, event by
// event.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/membership/machine.h"

namespace muster::membership {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(MemberLoop, AGenerationFromTheQuestionToTheStart) {
  Machine m;
  m.Feed(GenerationRequested{.last_step = 5});
  EXPECT_EQ(m.state.stage, Stage::kWaiting);
  EXPECT_EQ(m.state.report.last_step, 5);
  EXPECT_THAT(NamesOf(m.Feed(Tick{})), ElementsAre("OpenSession"));
  EXPECT_THAT(NamesOf(m.Feed(Welcomed{.welcome = {.run_id = "run-a"}})),
              ElementsAre("Note", "ChiefReached"));
  EXPECT_THAT(NamesOf(m.Feed(Tick{})), ElementsAre("SendReport"));
  EXPECT_THAT(NamesOf(m.Feed(Machine::Offer(1))), ElementsAre("NoteGeneration", "NotePhase"));
  EXPECT_EQ(m.state.stage, Stage::kForming);
  EXPECT_EQ(m.state.report.phase, Phase::kForming);
  m.Feed(LinksEstablished{.generation = 1, .description = "over TCP"});
  EXPECT_EQ(m.state.stage, Stage::kFormed);
  EXPECT_EQ(m.state.report.formed, 1);
  EXPECT_TRUE(m.state.changed);
  m.Feed(GenerationStarted{.generation = 1});
  EXPECT_EQ(m.state.stage, Stage::kRunning);
  EXPECT_EQ(m.state.report.phase, Phase::kStarting);
}

TEST(MemberLoop, WhoIsAloneIsStartedBeforeItsLinksStand) {
  Machine m;
  m.GoTo(Stage::kForming);
  EXPECT_THAT(NamesOf(m.Feed(GenerationStarted{.generation = 1})), ElementsAre("Note"));
  EXPECT_EQ(m.state.stage, Stage::kForming);
  EXPECT_THAT(m.Feed(GenerationStarted{.generation = 1}), IsEmpty()) << "said again";
  m.Feed(LinksEstablished{.generation = 1});
  EXPECT_EQ(m.state.stage, Stage::kRunning);
}

TEST(MemberLoop, LinksThatFailAreReportedAndNotStarted) {
  Machine m;
  m.GoTo(Stage::kForming);
  m.Feed(LinksFailed{.generation = 1, .message = "no route", .code = ExitCode::kConfiguration});
  EXPECT_EQ(m.state.stage, Stage::kFormed);
  ASSERT_TRUE(m.state.report.formation_error);
  EXPECT_EQ(m.state.report.formation_error->generation, 1);
  EXPECT_EQ(m.state.report.formation_error->code, ExitCode::kConfiguration);
  m.Feed(GenerationStarted{.generation = 1});
  EXPECT_EQ(m.state.stage, Stage::kFormed) << "there is nothing to start";
  m.Feed(GenerationAborted{.generation = 1, .reason = "no route"});
  EXPECT_EQ(m.state.stage, Stage::kIdle);
}

TEST(MemberLoop, AnotherGenerationIsStartedByNobody) {
  Machine m;
  m.GoTo(Stage::kFormed);
  m.Feed(GenerationStarted{.generation = 2});
  EXPECT_EQ(m.state.stage, Stage::kFormed);
}

TEST(MemberLoop, AGenerationThatComesAndGoesBetweenTwoLooks) {
  Machine m;
  m.GoTo(Stage::kForming);
  m.Feed(GenerationAborted{.generation = 1, .reason = "a loss"});
  EXPECT_EQ(m.state.stage, Stage::kIdle);
  m.Feed(LinksEstablished{.generation = 1});
  EXPECT_EQ(m.state.stage, Stage::kIdle) << "they came too late";
  m.Feed(GenerationRequested{});
  EXPECT_EQ(m.state.stage, Stage::kWaiting);
}

// The chief may have taken an old report for a new one.
TEST(MemberLoop, AGenerationThatIsOfferedBeforeTheLoopAsks) {
  for (const Stage stage : {Stage::kForming, Stage::kOver}) {
    Machine m;
    m.GoTo(stage);
    m.Feed(GenerationAborted{.generation = 1, .reason = "a loss"});
    const Stage before = m.state.stage;
    m.Feed(Machine::Offer(2));
    EXPECT_EQ(m.state.stage, before);
    EXPECT_TRUE(m.state.InGeneration());
    m.Feed(LinksEstablished{.generation = 1});
    EXPECT_EQ(m.state.stage, before) << "those of the one before";
    m.Feed(GenerationRequested{});
    EXPECT_EQ(m.state.stage, Stage::kForming);
    EXPECT_EQ(m.state.report.phase, Phase::kForming);
    m.Feed(LinksEstablished{.generation = 2});
    EXPECT_EQ(m.state.stage, Stage::kFormed);
  }
}

TEST(MemberLoop, AnOfferThatIsNotNewer) {
  Machine m;
  m.GoTo(Stage::kRunning);
  EXPECT_THAT(m.Feed(Machine::Offer(1)), IsEmpty()) << "again, after a resumed session";
  m.Feed(GenerationAborted{.generation = 1, .reason = "a loss"});
  const auto actions = m.Feed(Machine::Offer(1));
  ASSERT_NE(Find<Log>(actions), nullptr);
  EXPECT_THAT(Find<Log>(actions)->line, HasSubstr("ignored generation 1"));
  EXPECT_FALSE(m.state.InGeneration());
}

TEST(MemberLoop, ANewerOfferEndsTheGenerationThatRuns) {
  Machine m;
  m.GoTo(Stage::kRunning);
  EXPECT_THAT(NamesOf(m.Feed(Machine::Offer(2))),
              ElementsAre("AbortCommunicators", "SubmitRecord", "NoteGeneration"));
  EXPECT_EQ(m.state.stage, Stage::kOver);
  EXPECT_TRUE(m.state.IsOver(1));
  EXPECT_TRUE(m.state.InGeneration());
}

TEST(MemberLoop, AnAbortKeepsOneRecordOfItsGeneration) {
  Machine m;
  m.GoTo(Stage::kRunning);
  const auto actions = m.Feed(GenerationAborted{.generation = 1, .reason = "worker 2 was lost"});
  EXPECT_THAT(NamesOf(actions), ElementsAre("Note", "AbortCommunicators", "SubmitRecord"));
  EXPECT_EQ(Message(Find<AbortCommunicators>(actions)->why), "worker 2 was lost");
  EXPECT_EQ(Find<SubmitRecord>(actions)->reason, "worker 2 was lost");
  EXPECT_EQ(Find<SubmitRecord>(actions)->roster->generation, 1);
  EXPECT_FALSE(Find<SubmitRecord>(actions)->last);
  EXPECT_EQ(m.state.stage, Stage::kOver);
  EXPECT_TRUE(m.state.changed);
  EXPECT_THAT(m.Feed(GenerationAborted{.generation = 1, .reason = "again"}), IsEmpty());
  EXPECT_EQ(m.state.why_over, "worker 2 was lost");
}

TEST(MemberLoop, AnAbortOfAnOlderGenerationEndsNothing) {
  Machine m;
  m.GoTo(Stage::kRunning);
  m.Feed(GenerationAborted{.generation = 1, .reason = "a loss"});
  m.Feed(GenerationRequested{});
  m.Feed(Machine::Offer(7));
  m.Feed(LinksEstablished{.generation = 7});
  m.Feed(GenerationStarted{.generation = 7});
  EXPECT_EQ(Find<AbortCommunicators>(m.Feed(GenerationAborted{.generation = 5, .reason = "late"})),
            nullptr);
  EXPECT_EQ(m.state.stage, Stage::kRunning);
}

TEST(MemberLoop, AFailedCollectiveWaitsForTheCoordinatorsWord) {
  Machine m;
  m.GoTo(Stage::kRunning);
  EXPECT_THAT(m.Feed(CollectiveFailed{.message = "a reset link"}), IsEmpty());
  EXPECT_EQ(m.state.stage, Stage::kExplaining);
  ASSERT_TRUE(m.state.report.collective_error);
  EXPECT_EQ(m.state.report.collective_error->generation, 1);
  EXPECT_EQ(m.state.report.collective_error->message, "a reset link");
  EXPECT_TRUE(m.state.changed);
  m.Feed(GenerationAborted{.generation = 1, .reason = "a loss"});
  EXPECT_EQ(m.state.stage, Stage::kIdle);
}

TEST(MemberLoop, AFailedCollectiveOfAGenerationThatIsOverIsNoNews) {
  Machine m;
  m.GoTo(Stage::kOver);
  m.Feed(CollectiveFailed{.message = "a loss"});
  EXPECT_EQ(m.state.stage, Stage::kIdle);
  EXPECT_FALSE(m.state.report.collective_error);
  m = Machine();
  m.Feed(CollectiveFailed{.message = "before any"});
  EXPECT_FALSE(m.state.report.collective_error);
}

// The coordinator had no better reason within timeouts.explain, and the loop continues.
TEST(MemberLoop, ALoopThatAsksAgainBeforeTheAbort) {
  Machine m;
  m.GoTo(Stage::kExplaining);
  m.Feed(GenerationRequested{.last_step = 6});
  EXPECT_EQ(m.state.stage, Stage::kWaiting);
  EXPECT_TRUE(m.state.InGeneration()) << "until it is over, the session resumes with it";
  EXPECT_THAT(NamesOf(m.Feed(GenerationAborted{.generation = 1, .reason = "a loss"})),
              Contains("SubmitRecord"));
  EXPECT_EQ(m.state.stage, Stage::kWaiting);
  m.Feed(Machine::Offer(2));
  EXPECT_EQ(m.state.stage, Stage::kForming);
}

TEST(MemberLoop, AnOwnFailure) {
  Machine m;
  m.GoTo(Stage::kRunning);
  EXPECT_THAT(NamesOf(m.Feed(LoopFailed{.message = "NaN"})), ElementsAre("Note"));
  EXPECT_EQ(m.state.stage, Stage::kExplaining);
  const auto actions = m.Feed(FailureNotReported{.failure = "NaN", .why = "no answer"});
  EXPECT_THAT(NamesOf(actions), ElementsAre("Log", "SubmitRecord"));
  EXPECT_THAT(Find<Log>(actions)->line, HasSubstr("does not know of this failure: no answer"));
  EXPECT_TRUE(Find<SubmitRecord>(actions)->last);
  m.Feed(JobEnded{.verdict = Machine::Failure()});
  EXPECT_THAT(m.Feed(LoopFailed{.message = "NaN"}), IsEmpty());
  EXPECT_THAT(m.Feed(FailureNotReported{.failure = "NaN"}), IsEmpty());
}

TEST(MemberLoop, TheEndOfTheLoop) {
  Machine m;
  m.GoTo(Stage::kRunning);
  m.Feed(LoopFinished{.last_step = 9, .outcome = ExitCode::kPreempted, .message = "stopped"});
  EXPECT_EQ(m.state.stage, Stage::kFinished);
  EXPECT_EQ(m.state.report.last_step, 9);
  EXPECT_EQ(m.state.report.outcome, ExitCode::kPreempted);
  EXPECT_EQ(m.state.report.outcome_message, "stopped");
  EXPECT_EQ(m.state.report.phase, Phase::kEnding);
  const auto actions = m.Feed(JobEnded{.verdict = {}});
  EXPECT_THAT(NamesOf(actions), ElementsAre("Note", "NotifyVerdict")) << "nothing is aborted";
  EXPECT_EQ(m.state.stage, Stage::kEnded);
}

TEST(MemberLoop, ALoopThatFinishesAGenerationThatIsOver) {
  Machine m;
  m.GoTo(Stage::kOver);
  m.Feed(LoopFinished{.last_step = 9});
  EXPECT_EQ(m.state.stage, Stage::kIdle) << "it has to join the next one";
}

TEST(MemberLoop, AVerdictOfFailure) {
  Machine m;
  m.GoTo(Stage::kRunning);
  const auto actions = m.Feed(JobEnded{.verdict = Machine::Failure()});
  EXPECT_THAT(NamesOf(actions),
              ElementsAre("Note", "AbortCommunicators", "SubmitRecord", "NotifyVerdict"));
  EXPECT_EQ(ExitCodeOf(Find<AbortCommunicators>(actions)->why), ExitCode::kProgramFailed);
  EXPECT_TRUE(Find<SubmitRecord>(actions)->last);
  EXPECT_FALSE(Find<NotifyVerdict>(actions)->given_up);
  EXPECT_EQ(m.state.stage, Stage::kEnding) << "the loop has to come back";
  EXPECT_THAT(m.Feed(JobEnded{.verdict = {}}), IsEmpty()) << "the first one counts";
  m.Feed(LoopReturned{});
  EXPECT_EQ(m.state.stage, Stage::kEnded);
  m.Feed(GenerationRequested{});
  EXPECT_EQ(m.state.stage, Stage::kEnded);
  EXPECT_THAT(m.Feed(Machine::Offer(2)), IsEmpty());
}

TEST(MemberLoop, AStopWithAVerdictIsNoFailureWorthARecord) {
  Machine m;
  m.GoTo(Stage::kRunning);
  EXPECT_THAT(NamesOf(m.Feed(JobEnded{.verdict = {.code = ExitCode::kPreempted}})),
              Not(Contains("SubmitRecord")));
}

TEST(MemberLoop, ARefusalConcernsThisProcessAloneOnceItTrained) {
  Machine m;
  m.GoTo(Stage::kRunning);
  auto actions = m.Feed(Refused{.verdict = Machine::Failure()});
  EXPECT_TRUE(Find<NotifyVerdict>(actions)->given_up);
  m = Machine();
  m.GoTo(Stage::kWaiting);
  actions = m.Feed(Refused{.verdict = Machine::Failure()});
  EXPECT_FALSE(Find<NotifyVerdict>(actions)->given_up);
  EXPECT_EQ(Find<SubmitRecord>(actions), nullptr) << "of what?";
}

TEST(MemberLoop, PhasesAreNotedAndTheFirstOneIsSaidAtOnce) {
  Machine m;
  m.GoTo(Stage::kRunning);
  m.now += seconds(3);
  EXPECT_THAT(NamesOf(m.Feed(PhaseEntered{.phase = Phase::kData, .step = 1})),
              ElementsAre("NotePhase"));
  EXPECT_EQ(m.state.report.phase_since, m.now);
  EXPECT_TRUE(m.state.changed);
  m.Feed(Tick{});
  m.now += seconds(1);
  EXPECT_THAT(m.Feed(PhaseEntered{.phase = Phase::kData, .step = 1}), IsEmpty());
  EXPECT_EQ(m.state.report.phase_since, m.now) << "the loop has got on";
  EXPECT_FALSE(m.state.changed);
}

// The job does not wait for a member that is lost in its first step.
TEST(MemberLoop, TheEndOfAGenerationsFirstStepIsSaidAtOnce) {
  Machine m;
  m.GoTo(Stage::kRunning);
  const auto said_at_once = [&m](Phase phase, int64_t step) {
    m.Feed(PhaseEntered{.phase = phase, .step = step});
    return Find<SendReport>(m.Feed(Tick{})) != nullptr;
  };
  EXPECT_TRUE(said_at_once(Phase::kData, 1)) << "training has begun";
  EXPECT_FALSE(said_at_once(Phase::kForward, 1));
  EXPECT_TRUE(said_at_once(Phase::kData, 2));
  EXPECT_FALSE(said_at_once(Phase::kForward, 2));
  EXPECT_FALSE(said_at_once(Phase::kData, 3)) << "heartbeats report the others";

  // The next generation begins at step 8, wherever this process was.
  m.Feed(GenerationAborted{.generation = 1, .reason = "a loss"});
  m.Feed(GenerationRequested{.last_step = 2});
  m.Feed(GenerationOffered{
      .roster = std::make_shared<Roster>(Roster{.generation = 2, .newest_step = 7})});
  m.Feed(LinksEstablished{.generation = 2});
  m.Feed(GenerationStarted{.generation = 2});
  EXPECT_TRUE(said_at_once(Phase::kReduce, 3)) << "training continues: the state is fetched";
  EXPECT_FALSE(said_at_once(Phase::kData, 8)) << "the first step has begun";
  EXPECT_TRUE(said_at_once(Phase::kSave, 9));
  EXPECT_FALSE(said_at_once(Phase::kData, 9));
}

TEST(MemberLoop, ARequestToStop) {
  Machine m;
  m.GoTo(Stage::kRunning);
  EXPECT_THAT(NamesOf(m.Feed(StopReceived{})), ElementsAre("Note"));
  EXPECT_TRUE(m.state.report.stop_requested);
  EXPECT_FALSE(m.state.report.leave_requested);
  EXPECT_TRUE(m.state.changed);
  EXPECT_THAT(m.Feed(Pulse{.stop_requested = true}), IsEmpty());

  MemberRules elastic = TestRules();
  elastic.may_leave = true;
  m = Machine(elastic);
  m.GoTo(Stage::kRunning);
  m.Feed(StopReceived{});
  EXPECT_FALSE(m.state.report.stop_requested);
  EXPECT_TRUE(m.state.report.leave_requested);
  EXPECT_THAT(NamesOf(m.Feed(Pulse{.stop_requested = true})), ElementsAre("Note"));
  EXPECT_TRUE(m.state.report.stop_requested) << "all stop";
}

TEST(MemberLoop, ALineAboutTheRosterIsNotPrintedTwiceByTheChief) {
  Machine m;
  m.GoTo(Stage::kWaiting);
  EXPECT_THAT(NamesOf(m.Feed(RosterReceived{.line = "1/2 joined"})), ElementsAre("Log"));
  m.rules.is_chief = true;
  EXPECT_THAT(m.Feed(RosterReceived{.line = "1/2 joined"}), IsEmpty());
}

TEST(MemberLoop, RecordsThatWereKeptAreReported) {
  Machine m;
  m.GoTo(Stage::kEnded);
  EXPECT_FALSE(m.state.changed);
  m.Feed(RecordsDelivered{});
  EXPECT_THAT(NamesOf(m.Feed(Tick{})), ElementsAre("SendReport")) << "the acknowledgement";
}

}  // namespace
}  // namespace muster::membership
