// Tests how time, and the end of a session, change a member's state.
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

SessionClosed Unreachable() { return {.why = "connection refused", .retry = milliseconds(300)}; }

// ---- the session

TEST(MemberSession, IsOpenedOnceSomebodyAsks) {
  Machine m;
  EXPECT_THAT(m.Feed(Tick{}), IsEmpty());
  m.Feed(JoinRequested{});
  EXPECT_TRUE(m.state.changed) << "at once";
  EXPECT_THAT(NamesOf(m.Feed(Tick{})), ElementsAre("OpenSession"));
  EXPECT_EQ(m.state.session.stage, SessionStage::kConnecting);
  EXPECT_THAT(m.Feed(Tick{}), IsEmpty()) << "one at a time";
}

TEST(MemberSession, IsTriedAgainAfterTheBackOff) {
  Machine m;
  m.Feed(JoinRequested{});
  m.Feed(Tick{});
  m.Feed(Unreachable());
  EXPECT_EQ(m.state.session.stage, SessionStage::kBroken);
  EXPECT_EQ(m.state.session.last_error, "connection refused");
  EXPECT_THAT(m.After(milliseconds(299)), IsEmpty());
  EXPECT_THAT(NamesOf(m.After(milliseconds(1))), ElementsAre("OpenSession"));
}

TEST(MemberSession, IsTriedAgainAtOnceAfterABreak) {
  Machine m;
  m.GoTo(Stage::kRunning);
  m.Feed(Unreachable());
  EXPECT_THAT(NamesOf(m.Feed(Tick{})), ElementsAre("OpenSession"));
  m.Feed(Unreachable());
  EXPECT_THAT(m.Feed(Tick{}), IsEmpty()) << "once";
}

TEST(MemberSession, ThatIsResumedInTimeLosesNothing) {
  Machine m;
  m.GoTo(Stage::kRunning);
  m.Feed(Unreachable());
  m.Feed(Tick{});
  m.After(milliseconds(900), Welcomed{});
  EXPECT_FALSE(m.state.session.broken_since);
  EXPECT_THAT(NamesOf(m.After(milliseconds(200))), ElementsAre("SendReport"));
  EXPECT_EQ(m.state.stage, Stage::kRunning);
}

TEST(MemberSession, WhoIsNoChief) {
  Machine m;
  m.Feed(JoinRequested{});
  m.Feed(Tick{});
  m.Feed(SessionClosed{.no_chief = true, .why = "unknown service"});
  ASSERT_TRUE(m.state.verdict);
  EXPECT_EQ(m.state.verdict->code, ExitCode::kConfiguration);
  EXPECT_EQ(m.state.verdict->message, "node-a:2222 is not a Muster chief: unknown service");
  EXPECT_THAT(NamesOf(m.After(seconds(60))), Not(Contains("OpenSession")));
}

TEST(MemberSession, ReportsComeWithTheIntervalAndWithNews) {
  Machine m;
  m.GoTo(Stage::kRunning);
  EXPECT_THAT(m.After(milliseconds(999)), IsEmpty());
  EXPECT_THAT(NamesOf(m.After(milliseconds(1))), ElementsAre("SendReport"));
  m.Feed(StopReceived{});
  EXPECT_THAT(NamesOf(m.Feed(Tick{})), ElementsAre("SendReport"));
  EXPECT_THAT(m.Feed(Tick{}), IsEmpty());
}

TEST(MemberSession, NothingPassesOneThatIsMuted) {
  Machine m;
  m.GoTo(Stage::kRunning);
  m.Feed(StopReceived{});
  EXPECT_THAT(m.After(seconds(2), Tick{.muted = true}), IsEmpty());
  EXPECT_THAT(NamesOf(m.Feed(Tick{})), ElementsAre("SendReport"));
  m.Feed(Unreachable());
  EXPECT_THAT(m.Feed(Tick{.muted = true}), IsEmpty());
  EXPECT_THAT(m.Feed(Tick{.leaving = true}), IsEmpty()) << "nor is one opened by who leaves";
}

TEST(MemberSession, ACutByAPlannedFaultIsABreak) {
  Machine m;
  EXPECT_THAT(m.Feed(SessionCut{}), IsEmpty());
  m.GoTo(Stage::kRunning);
  EXPECT_THAT(NamesOf(m.Feed(SessionCut{})), ElementsAre("CancelSession"));
  m.Feed(Unreachable());
  EXPECT_THAT(NamesOf(m.Feed(Tick{})), ElementsAre("OpenSession"));
}

// ---- looking for the chief

TEST(MemberWatch, AChiefThatIsNotThere) {
  Machine m;
  m.Feed(JoinRequested{});
  m.Feed(Tick{});
  m.Feed(Unreachable());
  EXPECT_EQ(Find<Log>(m.After(milliseconds(9900))), nullptr);
  const auto waiting = m.After(milliseconds(100));
  ASSERT_NE(Find<Log>(waiting), nullptr);
  EXPECT_EQ(Find<Log>(waiting)->line,
            "this task waits for the chief chief:0 (node-a:2222): connection refused");
  EXPECT_EQ(Find<Log>(m.After(seconds(9))), nullptr) << "every 10 s";
  m.Feed(Unreachable());
  m.After(milliseconds(80999));
  EXPECT_FALSE(m.state.verdict);
  m.After(milliseconds(1));
  ASSERT_TRUE(m.state.verdict);
  EXPECT_EQ(m.state.verdict->code, ExitCode::kRetryable);
  EXPECT_EQ(m.state.verdict->message,
            "could not reach the chief chief:0 (node-a:2222) for 100 s (timeouts.join): "
            "connection refused");
  EXPECT_EQ(m.state.stage, Stage::kEnded);
}

TEST(MemberWatch, AChiefThatDoesNotAnswerIsTriedAgain) {
  Machine m;
  m.Feed(JoinRequested{});
  m.Feed(Tick{});
  EXPECT_THAT(NamesOf(m.After(seconds(10))), Contains("CancelSession"));
  EXPECT_EQ(m.state.session.stage, SessionStage::kClosing);
  EXPECT_EQ(m.state.session.last_error, "no answer");
  m.Feed(Unreachable());
  EXPECT_EQ(*m.state.looking_since + seconds(10), m.now) << "timeouts.join runs on";
  EXPECT_THAT(NamesOf(m.After(milliseconds(300))), ElementsAre("OpenSession"));
}

TEST(MemberWatch, AWaitingMemberLooksForTheChiefFromTheBreakOn) {
  Machine m;
  m.GoTo(Stage::kWaiting);
  m.now += seconds(80);
  m.Feed(Welcomed{});
  m.Feed(Unreachable());
  EXPECT_EQ(m.state.looking_since, m.now);
  m.After(seconds(99));
  EXPECT_FALSE(m.state.verdict);
  m.After(seconds(1));
  EXPECT_TRUE(m.state.verdict);
}

TEST(MemberWatch, AStopBeforeTheChiefIsReached) {
  Machine m;
  m.Feed(JoinRequested{});
  m.Feed(StopReceived{});
  m.Feed(Tick{});
  EXPECT_FALSE(m.state.verdict) << "if it is there, it has to know, for the others' sake";
  m.Feed(Unreachable());
  m.Feed(Tick{});
  ASSERT_TRUE(m.state.verdict);
  EXPECT_EQ(m.state.verdict->code, ExitCode::kPreempted);
  EXPECT_EQ(m.state.verdict->message, "stopped before the chief was reached, as asked");
}

TEST(MemberWatch, AStopWhileTheChiefIsAway) {
  Machine m;
  m.GoTo(Stage::kRunning);
  m.Feed(Unreachable());
  m.After(seconds(1));
  EXPECT_EQ(m.state.stage, Stage::kOver);
  m.Feed(Unreachable());
  m.Feed(GenerationRequested{});
  m.now += seconds(4);
  m.Feed(StopReceived{});
  m.Feed(Tick{});
  m.After(milliseconds(9900));
  EXPECT_FALSE(m.state.verdict) << "its successor would take over the state";
  m.After(milliseconds(100));
  ASSERT_TRUE(m.state.verdict);
  EXPECT_EQ(m.state.verdict->code, ExitCode::kPreempted);
  EXPECT_THAT(m.state.verdict->message, HasSubstr("did not return to save the state"));
}

// ---- losing the chief

TEST(MemberWatch, ASilentChiefIsLost) {
  Machine m;
  m.GoTo(Stage::kRunning);
  EXPECT_EQ(Find<CancelSession>(m.After(milliseconds(9999))), nullptr);
  const auto actions = m.After(milliseconds(1));
  EXPECT_THAT(NamesOf(actions), ElementsAre("Log", "Note", "AbortCommunicators", "SubmitRecord",
                                            "CancelSession", "NotifySilence"));
  EXPECT_EQ(Find<AbortCommunicators>(actions)->why,
            Superseded("lost the chief chief:0 (node-a:2222): no answer for 10.0 s"));
  EXPECT_THAT(Find<Log>(actions)->line, HasSubstr("this task waits up to 50 s for it to return"));
  EXPECT_EQ(Find<NotifySilence>(actions)->chief_pid, 17);
  EXPECT_EQ(m.state.stage, Stage::kOver);
  EXPECT_FALSE(m.state.InGeneration());
  EXPECT_EQ(m.state.looking_since, m.now);
}

TEST(MemberWatch, AHeartbeatKeepsTheChief) {
  Machine m;
  m.GoTo(Stage::kRunning);
  for (int i = 0; i < 10; ++i) m.After(seconds(9), Pulse{});
  m.Feed(Tick{});
  EXPECT_EQ(m.state.stage, Stage::kRunning);
}

TEST(MemberWatch, ABrokenSessionThatIsNotResumedLosesTheChief) {
  for (const Stage stage :
       {Stage::kForming, Stage::kFormed, Stage::kRunning, Stage::kExplaining, Stage::kFinished}) {
    Machine m;
    m.GoTo(stage);
    m.Feed(Unreachable());
    m.After(milliseconds(999));
    EXPECT_EQ(m.state.stage, stage);
    m.After(milliseconds(1));
    EXPECT_EQ(m.state.stage, stage == Stage::kRunning ? Stage::kOver : Stage::kIdle);
    EXPECT_THAT(m.state.why_over, HasSubstr("connection refused, tried again for 1.0 s"));
    m.After(seconds(49));
    EXPECT_FALSE(m.state.verdict);
    m.After(seconds(1));
    ASSERT_TRUE(m.state.verdict) << "timeouts.rejoin";
    EXPECT_THAT(m.state.verdict->message, HasSubstr("again for 50 s (timeouts.rejoin)"));
  }
}

TEST(MemberWatch, AMemberThatFinishedWithoutAGenerationComesBackToo) {
  Machine m;
  m.GoTo(Stage::kIdle);
  m.Feed(LoopFinished{});
  EXPECT_EQ(m.state.stage, Stage::kFinished);
  m.Feed(Unreachable());
  m.After(seconds(1));
  EXPECT_EQ(m.state.stage, Stage::kIdle);
}

TEST(MemberWatch, WhatComesOverASessionThatWasGivenUp) {
  Machine m;
  m.GoTo(Stage::kRunning);
  m.After(seconds(10));
  ASSERT_EQ(m.state.session.stage, SessionStage::kClosing);
  EXPECT_THAT(m.Feed(Machine::Offer(2)), IsEmpty());
  EXPECT_THAT(m.Feed(Pulse{.stop_requested = true}), IsEmpty());
  EXPECT_THAT(m.Feed(Welcomed{}), IsEmpty());
  EXPECT_EQ(m.state.session.stage, SessionStage::kClosing);
  m.Feed(JobEnded{.verdict = Machine::Failure()});
  EXPECT_TRUE(m.state.verdict) << "a verdict counts from every source";
}

TEST(MemberWatch, TheSupervisorHearsOfASilentChiefOnce) {
  ChiefSilence silence(seconds(10));
  const PausingTime start{seconds(1000)};
  EXPECT_FALSE(silence.TakeChange(start + seconds(1000)));  // never heard
  silence.OnContact(start);
  EXPECT_FALSE(silence.TakeChange(start + seconds(9)));
  EXPECT_EQ(silence.TakeChange(start + seconds(10)), seconds(10));
  EXPECT_FALSE(silence.TakeChange(start + seconds(14)));
  silence.OnContact(start + seconds(15));
  EXPECT_EQ(silence.TakeChange(start + seconds(15)), Duration::zero());
  EXPECT_FALSE(silence.TakeChange(start + seconds(15)));
}

// ---- the loop's return from a generation that is over

TEST(MemberReturn, ALoopThatDoesNotComeBackIsStuck) {
  Machine m;
  m.GoTo(Stage::kOver);
  EXPECT_EQ(Find<NotifyStuck>(m.After(milliseconds(59999), Tick{})), nullptr);
  m.Feed(Welcomed{});
  const auto actions = m.After(milliseconds(1));
  ASSERT_NE(Find<NotifyStuck>(actions), nullptr);
  EXPECT_EQ(Find<NotifyStuck>(actions)->why,
            "the training loop did not return within 60 s of the end of its generation "
            "(timeouts.abort): a loss");
  EXPECT_TRUE(Find<SubmitRecord>(actions)->last);
  EXPECT_EQ(Find<NotifyStuck>(m.After(seconds(60))), nullptr) << "once";
}

TEST(MemberReturn, ALoopThatIsBackIsNot) {
  for (const MemberEvent& event :
       {MemberEvent(GenerationRequested{}), MemberEvent(CollectiveFailed{}),
        MemberEvent(LoopFailed{}), MemberEvent(LoopFinished{}), MemberEvent(LoopReturned{})}) {
    Machine m;
    m.GoTo(Stage::kOver);
    m.Feed(event);
    EXPECT_EQ(Find<NotifyStuck>(m.After(seconds(300))), nullptr) << NameOf(event);
  }
}

TEST(MemberReturn, AVerdictToo) {
  Machine m;
  m.GoTo(Stage::kEnding);
  EXPECT_NE(Find<NotifyStuck>(m.After(seconds(60))), nullptr);
}

// timeouts.abort is no end to what a phase may legally take: storage that stalls in `data`.
TEST(MemberReturn, APhaseThatMayTakeLongerHasItsOwnLimit) {
  Machine m;
  m.GoTo(Stage::kRunning);
  m.Feed(PhaseEntered{.phase = Phase::kData, .step = 3});
  m.After(seconds(90), GenerationAborted{.generation = 1, .reason = "a loss"});
  EXPECT_EQ(Find<NotifyStuck>(m.After(seconds(299))), nullptr);
  const auto actions = m.After(seconds(1));
  ASSERT_NE(Find<NotifyStuck>(actions), nullptr);
  EXPECT_THAT(Find<NotifyStuck>(actions)->why,
              HasSubstr("within 300 s of the end of its generation (timeouts.phase.data)"));
}

TEST(MemberReturn, TheNextPhaseBeginsItsOwnLimit) {
  Machine m;
  m.GoTo(Stage::kRunning);
  m.Feed(PhaseEntered{.phase = Phase::kData, .step = 3});
  m.Feed(GenerationAborted{.generation = 1, .reason = "a loss"});
  m.After(seconds(250), PhaseEntered{.phase = Phase::kForward, .step = 3});
  EXPECT_EQ(Find<NotifyStuck>(m.After(seconds(59))), nullptr);
  EXPECT_NE(Find<NotifyStuck>(m.After(seconds(1))), nullptr);
}

TEST(MemberReturn, WhoWaitsForPeersIsWokenAndHasNoLonger) {
  Machine m;
  m.GoTo(Stage::kRunning);
  m.Feed(PhaseEntered{.phase = Phase::kReduce, .step = 3});
  m.Feed(GenerationAborted{.generation = 1, .reason = "a loss"});
  EXPECT_EQ(Find<NotifyStuck>(m.After(seconds(59))), nullptr);
  EXPECT_NE(Find<NotifyStuck>(m.After(seconds(1))), nullptr);
}

TEST(MemberReturn, ASaveIsFinished) {
  Machine m;
  m.GoTo(Stage::kRunning);
  m.Feed(PhaseEntered{.phase = Phase::kSave, .step = 3});
  m.Feed(GenerationAborted{.generation = 1, .reason = "a loss"});
  EXPECT_EQ(Find<NotifyStuck>(m.After(seconds(3000))), nullptr) << "without a limit of its own";
  m.rules.timeouts.phase[static_cast<int>(Phase::kSave)] = seconds(1800);
  EXPECT_NE(Find<NotifyStuck>(m.Feed(Tick{})), nullptr);
}

}  // namespace
}  // namespace muster::membership
