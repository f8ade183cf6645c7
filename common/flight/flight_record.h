// The file format of one process's flight record: the recorder's content (common/base) when a
// generation or the job ended badly. The file is a JSON object with one event per line, so that
// grep works on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/flight/flight_recorder.h"
#include "muster/status.h"

namespace muster {

// The process of the record, and the reason for writing it.
struct FlightHeader {
  std::string task;  // "worker:1"
  std::string host;
  int64_t pid = 0;
  std::string run_id;
  uint64_t generation = 0;           // The last generation that the process was in.
  std::vector<std::string> members;  // The members of that generation, by rank.
  std::string reason;                // Why the generation ended.
};

// An event as read from a file. Missing fields are empty.
struct RecordedEvent {
  double monotonic = 0;  // Seconds, this host's clock. Comparable only within one record.
  double wall = 0;       // Seconds since 1970, this host's clock.
  FlightKind kind = FlightKind::kPhase;
  Phase phase = Phase::kStarting;
  uint64_t generation = 0;
  int64_t step = 0;
  uint64_t sequence = 0;  // The sequence number of the collective in `operation`.
  int32_t replica = 0;
  int64_t bytes = 0;
  std::string operation;  // "all_reduce(float32 x 100, sum)"
  std::string detail;
};

struct FlightRecord {
  FlightHeader header;
  double written_monotonic = 0, written_wall = 0;
  uint64_t lost_events = 0;           // Older events that were overwritten.
  std::vector<RecordedEvent> events;  // Oldest first.
};

// Returns the text of a record. `recorded` is the total number of events ever recorded
// (FlightRecorder::recorded).
std::string FlightText(const FlightHeader& header, const std::vector<FlightEvent>& events,
                       uint64_t recorded);

// Returns a DataError if `text` is damaged or not a record. `origin`, a path, appears in the
// message.
absl::StatusOr<FlightRecord> ParseFlightRecord(std::string_view text, std::string_view origin);

// FlightFolder returns "0001-000002", the folder of a generation below model_dir/flight.
// GenerationOfFolder is its inverse and returns 0 for any other name.
std::string FlightFolder(uint64_t generation);
uint64_t GenerationOfFolder(std::string_view name);
// "worker-1.json".
std::string FlightFile(std::string_view task);

}  // namespace muster
