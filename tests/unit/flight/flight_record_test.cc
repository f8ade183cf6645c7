#include "common/flight/flight_record.h"

#include <gmock/gmock.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kRecordGeneration = (uint64_t{3} << 32) | 12;

std::string RecordText() {
  FlightRecorder recorder;
  recorder.EnterGeneration(kRecordGeneration, "chief:0, worker:1");
  recorder.EnterPhase(Phase::kReduce, 41);
  CollectiveCall call{"all_reduce", "float32", "sum", 100, 400};
  call.sequence = 9;
  call.replica = 1;
  recorder.Starts(call);
  recorder.Ends(call, "\"lost\"\n\xff");  // any bytes
  FlightHeader header;
  header.task = "worker:1";
  header.host = "node-b";
  header.pid = 77;
  header.run_id = "run";
  header.generation = kRecordGeneration;
  header.members = {"chief:0", "worker:1"};
  header.reason = "worker 0 was lost";
  return FlightText(header, recorder.Events(), recorder.recorded() + 5);
}

TEST(FlightRecord, ComesBackAsItWasWritten) {
  const std::string text = RecordText();
  EXPECT_THAT(text, HasSubstr("\n{\"t\":"));  // an event a line
  const auto record = ParseFlightRecord(text, "a.json");
  ASSERT_TRUE(record.ok()) << Message(record.status());
  EXPECT_EQ(record->header.task, "worker:1");
  EXPECT_EQ(record->header.host, "node-b");
  EXPECT_EQ(record->header.pid, 77);
  EXPECT_EQ(record->header.generation, kRecordGeneration);
  EXPECT_THAT(record->header.members, ElementsAre("chief:0", "worker:1"));
  EXPECT_EQ(record->header.reason, "worker 0 was lost");
  EXPECT_EQ(record->lost_events, 5u);
  ASSERT_EQ(record->events.size(), 4u);
  const RecordedEvent& failed = record->events[3];
  EXPECT_EQ(failed.kind, FlightKind::kCollectiveFailed);
  EXPECT_EQ(failed.phase, Phase::kReduce);
  EXPECT_EQ(failed.generation, kRecordGeneration);
  EXPECT_EQ(failed.step, 41);
  EXPECT_EQ(failed.sequence, 9u);
  EXPECT_EQ(failed.replica, 1);
  EXPECT_EQ(failed.bytes, 400);
  EXPECT_EQ(failed.operation, "all_reduce(float32 x 100, sum)");
  EXPECT_EQ(failed.detail, "\"lost\"\n\uFFFD");
  EXPECT_GE(failed.monotonic, record->events[0].monotonic);
  EXPECT_GE(record->written_monotonic, failed.monotonic);
  EXPECT_NEAR(record->written_wall - record->written_monotonic, failed.wall - failed.monotonic,
              1e-5);
}

TEST(FlightRecord, DamagedAndForeignFilesAreDistinguished) {
  const std::string text = RecordText();
  const auto error = [](std::string_view bytes) {
    return std::string(Message(ParseFlightRecord(bytes, "a.json").status()));
  };
  EXPECT_THAT(error(text.substr(0, text.size() / 2)), HasSubstr("a.json is damaged"));
  EXPECT_THAT(error(""), HasSubstr("a.json is damaged"));
  EXPECT_THAT(error("{\"loss\": 1}"), HasSubstr("a.json is not a flight record"));
  EXPECT_THAT(error("[1]"), HasSubstr("a.json is not a flight record"));
  EXPECT_THAT(error("{\"format\": \"muster flight record\", \"version\": 9}"),
              HasSubstr("another version"));
  EXPECT_THAT(error("{\"format\": \"muster flight record\", \"version\": 1}"),
              HasSubstr("a.json is damaged: "));
  EXPECT_EQ(ExitCodeOf(ParseFlightRecord("", "x").status()), ExitCode::kDataDamaged);
  // Cut anywhere, it is never taken for whole.
  for (size_t size = 0; size + 2 < text.size(); size += 7)
    EXPECT_FALSE(ParseFlightRecord(text.substr(0, size), "x").ok()) << size;
}

TEST(FlightRecord, FoldersAndFilesAreNamedAfterGenerationAndTask) {
  EXPECT_EQ(FlightFolder(kRecordGeneration), "0003-000012");
  EXPECT_EQ(GenerationOfFolder("0003-000012"), kRecordGeneration);
  for (const char* name : {"", "3-12", "0003-00001x", "checkpoints", "0003-000012.part"})
    EXPECT_EQ(GenerationOfFolder(name), 0u) << name;
  EXPECT_EQ(FlightFile("worker:1"), "worker-1.json");
}

}  // namespace
}  // namespace muster
