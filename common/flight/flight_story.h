// Combines the flight records of one generation. The result says which collective all members
// completed, which members reached the next one, and why the generation ended. Pure functions.
//
// Clocks of hosts differ. All ranks complete an operation at nearly the same moment. The times of
// another host's record are therefore shifted by the median difference between its completions and
// those of the first record.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/flight/flight_record.h"
#include "muster/json.h"

namespace muster {

struct FlightQuestion {
  std::vector<FlightRecord> records;  // All records belong to one generation.
  // Records of the next generation that left any. They show which tasks came back. May be empty.
  std::vector<FlightRecord> later;
};

// The part of one task.
struct FlightPart {
  std::string task, host;
  int64_t pid = 0;
  double clock_offset = 0;  // Seconds subtracted from its times.
  // The number of operations that gave the offset. 0: no offset was needed or possible.
  int shared_operations = 0;
  uint64_t completed = 0;       // The last operation that it completed.
  bool entered = false;         // It entered the operation after the last one that all completed.
  double entered_at = 0;        // Wall time.
  std::string operation;        // The operation that it called there.
  bool completed_next = false;  // It completed that operation.
  std::string failure;          // Why that operation failed.
  int64_t step = 0;             // At the end of the generation.
  Phase phase = Phase::kStarting;
  // Wall time. `end` is when the task learned that the generation was over.
  double phase_since = 0, end = 0;
  uint64_t lost_events = 0;
};

struct FlightNote {
  double at = 0;  // Wall time, shifted by the clock offset.
  std::string task, text;
};

struct FlightStory {
  std::string run_id;
  uint64_t generation = 0;
  // Tasks. `missing` holds the members without a record.
  std::vector<std::string> members, missing;
  std::vector<FlightPart> parts;  // By rank.
  // The last operation that all tasks with a record completed. 0: none.
  uint64_t last_completed = 0;
  std::string last_operation;  // "" if no record holds it any more.
  int64_t last_step = 0;
  double last_at = 0;
  bool next = false;              // Some task entered the operation after it.
  bool diverged = false;          // The tasks entered different operations.
  std::vector<FlightNote> notes;  // Other events, in order of time.
  double started_at = 0;          // 0: not recorded, or never started.
  double ended_at = 0;
  std::string reason;
  // The next known generation. 0: none.
  uint64_t followed_by = 0;
  std::vector<std::string> came_back;  // "worker 1 (host b, pid 12), a new process"
};

// REQUIRES: at least one record, all of one generation.
FlightStory TellFlight(const FlightQuestion& question);

// Returns plain sentences, one per line.
std::vector<std::string> FlightLines(const FlightStory& story);
Json FlightJson(const FlightStory& story);

// Returns "03:38:18.528" in this machine's time zone.
std::string WallText(double wall);

}  // namespace muster
