// The file format of flight records. A flight record has the last events of a process, from the
// process's FlightRecorder. A process writes a record when a generation or the job fails. A
// generation is a period of training with fixed members. The file is a JSON object with one event
// per line, so that grep can search the file.
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
  uint64_t generation = 0;           // The last generation of the process.
  std::vector<std::string> members;  // The tasks in that generation. Indexed by rank.
  std::string reason;                // Why the generation ended.
};

// A FlightEvent as read from a file. Fields that are missing in the file have their default values.
struct RecordedEvent {
  // By the host's monotonic clock, in seconds. Comparable only within one record.
  double monotonic = 0;
  double wall = 0;  // Seconds since the epoch, by the host's wall clock.
  FlightKind kind = FlightKind::kPhase;
  Phase phase = Phase::kStarting;
  uint64_t generation = 0;
  int64_t step = 0;
  uint64_t sequence = 0;  // CollectiveCall::sequence of `operation`. 0: no collective operation.
  int32_t replica = 0;
  int64_t bytes = 0;
  std::string operation;  // For example "all_reduce(float32 x 100, sum)".
  std::string detail;
};

struct FlightRecord {
  FlightHeader header;
  // The time at which the record was written, as in RecordedEvent.
  double written_monotonic = 0, written_wall = 0;
  uint64_t lost_events = 0;           // The number of events that were overwritten by newer events.
  std::vector<RecordedEvent> events;  // The oldest event is first.
};

// Returns the text of a record's file. `events` and `recorded` are the results of
// FlightRecorder::Events() and recorded().
std::string FlightText(const FlightHeader& header, const std::vector<FlightEvent>& events,
                       uint64_t recorded);

// Parses the text of a record's file. `origin` is the file's path for the error message. Returns a
// DataError if `text` is not a valid record.
absl::StatusOr<FlightRecord> ParseFlightRecord(std::string_view text, std::string_view origin);

// FlightFolder returns the name of a generation's folder in model_dir/flight, such as
// "0001-000002". GenerationOfFolder is the inverse, and returns 0 for any other name.
std::string FlightFolder(uint64_t generation);
uint64_t GenerationOfFolder(std::string_view name);
// Returns the file name of a task's record, such as "worker-1.json".
std::string FlightFile(std::string_view task);

}  // namespace muster
