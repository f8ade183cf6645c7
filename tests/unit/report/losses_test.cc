#include "deploy/report/losses.h"

#include <gmock/gmock.h>

#include "common/flight/flight_record.h"

namespace muster::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

FlightRecord RecordOf(uint64_t generation, int64_t step, double wall) {
  FlightRecord record;
  record.header.task = "chief:0";
  record.header.generation = generation;
  record.header.reason = "worker 1 is gone";
  record.events = {
      {.wall = wall - 1, .generation = generation, .step = step},
      {.wall = wall, .kind = FlightKind::kAborted, .generation = generation, .step = step}};
  record.written_wall = wall + 5;
  return record;
}

constexpr uint64_t kFirst = (uint64_t{1} << 32) + 1;

report::Run RunWithLoss() {
  report::Run run{.began = 1000};
  run.recovery = {
      {"last_losses", {{{"step", 119}, {"seconds", 2.5}, {"cause", "worker:1 was lost"}}}}};
  run.folders["train"].scalars["loss"] = {{100, 1010, 1}, {150, 1020, 1}, {200, 1030, 1}};
  run.folders["train"].starts = {{"host.1", 1, 1000}};
  return run;
}

TEST(Marks, AreAbsentWithoutRecords) { EXPECT_THAT(MarksOf(report::Run{}), IsEmpty()); }

TEST(Marks, ALossIsBeforeTheNextPoint) {
  const std::vector<Mark> marks = MarksOf(RunWithLoss());
  ASSERT_EQ(marks.size(), 1u);
  EXPECT_EQ(marks[0].kind, Mark::Kind::kLoss);
  EXPECT_EQ(marks[0].step, 119);
  EXPECT_EQ(marks[0].wall, 1017.5);
  EXPECT_TRUE(marks[0].estimated);
  EXPECT_EQ(marks[0].seconds, 2.5);
}

TEST(Marks, AFlightRecordHasTheTimeOfItsLoss) {
  report::Run run = RunWithLoss();
  run.flights = {RecordOf(kFirst, 120, 1012), RecordOf(kFirst + 1, 170, 1025)};
  const std::vector<Mark> marks = MarksOf(run);
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[0].wall, 1012);
  EXPECT_FALSE(marks[0].estimated);
  EXPECT_EQ(marks[1].kind, Mark::Kind::kEnd);
  EXPECT_EQ(marks[1].step, 170);
  EXPECT_THAT(marks[1].text, HasSubstr("generation 1.2 ended: worker 1 is gone"));
}

TEST(Marks, OnlyAnotherProcessIsARestart) {
  report::Run run = RunWithLoss();
  run.folders["train"].starts = {{"host.1", 1, 1000}, {"host.1", 110, 1015}, {"host.2", 151, 1022}};
  const std::vector<Mark> marks = MarksOf(run);
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[1].kind, Mark::Kind::kRestart);
  EXPECT_EQ(marks[1].step, 150);
  EXPECT_EQ(marks[1].wall, 1022);
  EXPECT_THAT(marks[1].text, HasSubstr("host.2"));
}

TEST(Marks, DamagedLossesHaveNoFields) {
  report::Run run;
  run.recovery = {{"last_losses", {nullptr, "text", {{"step", "many"}}, Json::array()}}};
  EXPECT_EQ(MarksOf(run).size(), 4u);
  run.recovery = {{"last_losses", 3}};
  EXPECT_THAT(MarksOf(run), IsEmpty());
}

}  // namespace
}  // namespace muster::report
