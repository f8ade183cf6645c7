// Tests the events that several tasks' flight records give together.
#include "common/flight/flight_story.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint64_t kStoryGeneration = (uint64_t{1} << 32) | 2;
constexpr char kSum[] = "all_reduce(float32 x 100, sum)";

// Writes one task's record; times are seconds on the chief's clock.
class Writer {
 public:
  Writer(const std::string& task, const std::string& host, int64_t pid, double clock = 0)
      : clock_(clock) {
    record_.header = {task, host, pid, "run", kStoryGeneration, {"chief:0", "worker:0", "worker:1"},
                      ""};
    record_.written_wall = 1000 + clock;
  }
  Writer& Phase(double at, muster::Phase phase, int64_t step) {
    phase_ = phase;
    step_ = step;
    return Add(at, FlightKind::kPhase);
  }
  // Comes to operation `sequence`; with `end`: completes it.
  Writer& Op(uint64_t sequence, double at, double end = 0, const std::string& what = kSum,
             int replica = 0) {
    Add(at, FlightKind::kCollectiveStart, "", sequence, what, replica);
    if (end > 0) Add(end, FlightKind::kCollectiveEnd, "", sequence, what, replica);
    return *this;
  }
  Writer& Add(double at, FlightKind kind, const std::string& detail = "", uint64_t sequence = 0,
              const std::string& what = "", int replica = 0) {
    RecordedEvent event;
    event.monotonic = at;
    event.wall = at + clock_;
    event.kind = kind;
    event.phase = phase_;
    event.step = step_;
    event.generation = kStoryGeneration;
    event.sequence = sequence;
    event.replica = replica;
    event.operation = what;
    event.detail = detail;
    record_.events.push_back(event);
    return *this;
  }
  FlightRecord Done() const { return record_; }

 private:
  const double clock_;
  muster::Phase phase_ = Phase::kStarting;
  int64_t step_ = 0;
  FlightRecord record_;
};

std::string StoryText(const FlightQuestion& question) {
  return fmt::format("{}", fmt::join(FlightLines(BuildFlightStory(question)), "\n"));
}

// Two members that wait for a third, which was killed.
FlightQuestion Killed(double clock = 0) {
  FlightQuestion question;
  const std::string why = "worker 1 on host c (step 8, reduce): lost: the process is gone";
  question.records.push_back(Writer("chief:0", "a", 11)
                                 .Add(1, FlightKind::kStarted)
                                 .Phase(5, Phase::kReduce, 7)
                                 .Op(20, 5, 5.1)
                                 .Phase(5.2, Phase::kReduce, 8)
                                 .Op(21, 5.3)
                                 .Add(5.9, FlightKind::kAborted, why)
                                 .Done());
  question.records.push_back(Writer("worker:0", "b", 12, clock)
                                 .Phase(4.9, Phase::kReduce, 7)
                                 .Op(20, 5, 5.1)
                                 .Phase(5.2, Phase::kReduce, 8)
                                 .Op(21, 5.4)
                                 .Add(5.9, FlightKind::kAborted, why)
                                 .Done());
  return question;
}

TEST(FlightStory, AKilledMemberHasNoRecordAndTheOthersTellWhereTheyStood) {
  const FlightStory story = BuildFlightStory(Killed());
  EXPECT_THAT(story.missing, ElementsAre("worker:1"));
  EXPECT_EQ(story.last_completed, 20u);
  EXPECT_EQ(story.last_operation, kSum);
  EXPECT_EQ(story.last_step, 7);
  EXPECT_FALSE(story.diverged);
  for (const FlightPart& part : story.parts) EXPECT_TRUE(part.entered);
  const std::string text = StoryText(Killed());
  EXPECT_THAT(text,
              HasSubstr("Generation 1.2 of run run: 3 members, chief 0, worker 0 and worker 1."));
  EXPECT_THAT(text, HasSubstr("No record of worker 1: killed"));
  EXPECT_THAT(text, HasSubstr("all of these completed collective 20, all_reduce(float32 x 100, "
                              "sum) of step 7."));
  EXPECT_THAT(text, HasSubstr("chief 0 entered collective 21, all_reduce(float32 x 100, sum) and "
                              "was in it for 600 ms."));
  EXPECT_THAT(text, HasSubstr("Why it ended: worker 1 on host c (step 8, reduce): lost"));
  EXPECT_THAT(text, HasSubstr("chief 0 and worker 0: the generation is over"));
}

TEST(FlightStory, WhoHasNotComeIsNamedWithWhatItDidAndForHowLong) {
  FlightQuestion question = Killed();
  question.records.push_back(Writer("worker:1", "c", 13)
                                 .Op(20, 5, 5.1)
                                 .Phase(5.2, Phase::kForward, 8)
                                 .Add(65.2, FlightKind::kVerdict, "worker 1: in phase 'forward'")
                                 .Done());
  const FlightStory story = BuildFlightStory(question);
  EXPECT_THAT(story.missing, IsEmpty());
  const std::string text = StoryText(question);
  EXPECT_THAT(text, HasSubstr("all members completed collective 20"));
  EXPECT_THAT(text, HasSubstr("worker 1 had not entered collective 21: it was in phase 'forward' "
                              "of step 8 for 60.0 s."));
  const Json json = FlightJson(story);
  EXPECT_EQ(json.at("records").at(2).at("phase"), "forward");
  EXPECT_NEAR(json.at("records").at(2).at("phase_seconds").get<double>(), 60, 1e-6);
  EXPECT_EQ(json.at("records").at(2).at("entered_next"), false);
  EXPECT_EQ(json.at("last_completed").at("sequence"), 20);
}

TEST(FlightStory, ClocksOfOtherHostsAreMovedByTheOperationsThatBothCompleted) {
  for (const double clock : {3600.0, -0.25}) {
    const FlightStory story = BuildFlightStory(Killed(clock));
    EXPECT_NEAR(story.parts[1].clock_offset, clock, 1e-6);
    EXPECT_EQ(story.parts[1].shared_operations, 1);
    EXPECT_NEAR(story.parts[1].entered_at, 5.4, 1e-6);
    EXPECT_NEAR(story.ended_at, 5.9, 1e-6);
  }
  EXPECT_THAT(StoryText(Killed(3600)),
              HasSubstr("The clock of worker 0 is 3600.0 s ahead of chief 0's"));
  EXPECT_THAT(StoryText(Killed(-0.25)),
              HasSubstr("The clock of worker 0 is 250 ms behind chief 0's"));
  EXPECT_THAT(StoryText(Killed(0)), Not(HasSubstr("The clock of")));
}

TEST(FlightStory, RanksThatCallDifferentThingsAreSaidToDiverge) {
  FlightQuestion question;
  question.records.push_back(
      Writer("worker:0", "b", 12).Op(20, 5, 5.1).Op(21, 5.2, 0, "barrier()").Done());
  question.records.push_back(Writer("chief:0", "a", 11).Op(20, 5, 5.1).Op(21, 5.2).Done());
  const FlightStory story = BuildFlightStory(question);
  EXPECT_TRUE(story.diverged);
  EXPECT_EQ(story.parts[0].task, "chief:0") << "by rank";
  const std::string text = StoryText(question);
  EXPECT_THAT(text, HasSubstr("worker 0 entered collective 21, barrier()"));
  EXPECT_THAT(text, HasSubstr("the program diverges between ranks"));
}

// A task is where its last replica is.
TEST(FlightStory, OfSeveralReplicasTheHindmostCounts) {
  FlightQuestion question;
  question.records.push_back(
      Writer("chief:0", "a", 11).Op(20, 5, 5.1).Op(21, 6, 6.1).Op(20, 5, 5.1, kSum, 1).Done());
  EXPECT_EQ(BuildFlightStory(question).last_completed, 20u);
}

TEST(FlightStory, LaterEventsAreReportedWithOldAndNewProcesses) {
  FlightQuestion question = Killed();
  FlightRecord same = question.records[0], fresh = question.records[1];
  same.header.generation = fresh.header.generation = kStoryGeneration + 1;
  fresh.header.task = "worker:1";
  fresh.header.pid = 99;
  fresh.events.clear();
  question.later = {same, fresh};
  const FlightStory story = BuildFlightStory(question);
  EXPECT_EQ(story.followed_by, kStoryGeneration + 1);
  EXPECT_THAT(story.came_back, ElementsAre("chief 0 (host a, pid 11, the same process)",
                                           "worker 1 (host b, pid 99, a new process)"));
  EXPECT_THAT(StoryText(question), HasSubstr("Generation 1.3 followed, with records of chief 0"));
}

TEST(FlightStory, ARecordWithoutEventsIsReportedToo) {
  FlightQuestion question;
  question.records.push_back(Writer("chief:0", "a", 11).Done());
  question.records[0].header.reason = "worker 0 did not form";
  const std::string text = StoryText(question);
  EXPECT_THAT(text, HasSubstr("no collective operation was completed by all"));
  EXPECT_THAT(text, HasSubstr("Why it ended: worker 0 did not form"));
}

TEST(FlightStory, AThousandTasksStayReadable) {
  FlightQuestion question;
  const FlightRecord one = Killed().records[0];
  for (int i = 0; i < 1000; ++i) {
    question.records.push_back(one);
    question.records.back().header.task = fmt::format("worker:{}", i);
  }
  for (FlightRecord& record : question.records) {
    record.header.members.clear();
    for (int i = 0; i < 1000; ++i) record.header.members.push_back(fmt::format("worker:{}", i));
  }
  EXPECT_LT(FlightLines(BuildFlightStory(question)).size(), 60u);
}

}  // namespace
}  // namespace muster
