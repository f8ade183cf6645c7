// The file format of flight records. A process writes its record, the content of its
// FlightRecorder, when a generation or the job fails. The file is a JSON object with one event per
// line, so that grep can search it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/flight/flight_recorder.h"
#include "muster/status.h"

namespace muster {

// Identifies the process that wrote the record, and the failure.
struct FlightHeader {
  std::string task;  // For example "worker:1".
  std::string host;
  int64_t pid = 0;
  std::string run_id;
  uint64_t generation = 0;           // The last generation that the process was in.
  std::vector<std::string> members;  // The members of that generation, by rank.
  std::string reason;                // The reason for the end of the generation.
};

// An event of a record. Fields that the file lacks are empty.
struct RecordedEvent {
  double monotonic = 0;  // In seconds, by the host's clock. Comparable only within one record.
  double wall = 0;       // In seconds since 1970, by the host's clock.
  FlightKind kind = FlightKind::kPhase;
  Phase phase = Phase::kStarting;
  uint64_t generation = 0;
  int64_t step = 0;
  uint64_t sequence = 0;  // The sequence number of the collective in `operation`.
  int32_t replica = 0;
  int64_t bytes = 0;
  std::string operation;  // For example "all_reduce(float32 x 100, sum)".
  std::string detail;
};

struct FlightRecord {
  FlightHeader header;
  double written_monotonic = 0, written_wall = 0;
  uint64_t lost_events = 0;           // The number of older events that were overwritten.
  std::vector<RecordedEvent> events;  // The oldest event is first.
};

// Returns the text of a record's file. `recorded` is FlightRecorder::recorded().
std::string FlightText(const FlightHeader& header, const std::vector<FlightEvent>& events,
                       uint64_t recorded);

// Parses the text of a record's file. Returns a DataError if `text` is damaged or is not a record.
// `origin` is the path for the message.
absl::StatusOr<FlightRecord> ParseFlightRecord(std::string_view text, std::string_view origin);

// FlightFolder returns the name of a generation's folder in model_dir/flight, such as
// "0001-000002". GenerationOfFolder is the inverse, and returns 0 for any other name.
std::string FlightFolder(uint64_t generation);
uint64_t GenerationOfFolder(std::string_view name);
// Returns the file name of a task's record, such as "worker-1.json".
std::string FlightFile(std::string_view task);

}  // namespace muster
