// One process's flight record as it is written down: what the recorder (common/base) held when a
// generation or the job ended badly. A JSON object with one event a line, so that grep is of use
// too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/flight_recorder.h"
#include "muster/status.h"

namespace muster {

// Whose record it is, and why it was written.
struct FlightHeader {
  std::string task;  // "worker:1"
  std::string host;
  int64_t pid = 0;
  std::string run_id;
  uint64_t generation = 0;           // the last one that the process was in
  std::vector<std::string> members;  // of that generation, by rank
  std::string reason;                // why it ended
};

// As read from a file; what is not there is empty.
struct RecordedEvent {
  double monotonic = 0;  // seconds, this host's clock: to compare within one record
  double wall = 0;       // seconds since 1970, this host's clock
  FlightKind kind = FlightKind::kPhase;
  Phase phase = Phase::kStarting;
  uint64_t generation = 0;
  int64_t step = 0;
  uint64_t sequence = 0;  // of a collective, which `operation` spells out
  int32_t replica = 0;
  int64_t bytes = 0;
  std::string operation;  // "all_reduce(float32 x 100, sum)"
  std::string detail;
};

struct FlightRecord {
  FlightHeader header;
  double written_monotonic = 0, written_wall = 0;
  uint64_t lost_events = 0;           // older ones that were overwritten
  std::vector<RecordedEvent> events;  // oldest first
};

// The text of a record. `recorded`: how many events there ever were (FlightRecorder::recorded).
std::string FlightText(const FlightHeader& header, const std::vector<FlightEvent>& events,
                       uint64_t recorded);

// DataError where `text` is damaged or something else, with `origin` (a path) in the message.
absl::StatusOr<FlightRecord> ParseFlightRecord(std::string_view text, std::string_view origin);

// "0001-000002", the folder of a generation below model_dir/flight, and back (0: it is none).
std::string FlightFolder(uint64_t generation);
uint64_t GenerationOfFolder(std::string_view name);
// "worker-1.json".
std::string FlightFile(std::string_view task);

}  // namespace muster
