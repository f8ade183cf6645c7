// Combines the flight records of one generation into a story. The story says which collective
// operation all members completed, which members entered the next operation, and why the generation
// ended. Pure functions.
//
// The clocks of hosts differ, but all ranks complete an operation at nearly the same time.
// BuildFlightStory therefore subtracts a clock offset from the times of records of other hosts than
// the first record's. The offset is the median difference between completion times in the record
// and in the first record.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/flight/flight_record.h"
#include "muster/json.h"

namespace muster {

struct FlightQuestion {
  std::vector<FlightRecord> records;  // All records are of one generation.
  // The records of the next generation that has records. They show which tasks came back. May be
  // empty.
  std::vector<FlightRecord> later;
};

// The part of one task in the story, from its record.
struct FlightPart {
  std::string task, host;
  int64_t pid = 0;
  double clock_offset = 0;  // In seconds. Subtracted from the record's times.
  // The number of operations that determine the offset. 0 if no offset is needed or possible.
  int shared_operations = 0;
  uint64_t completed = 0;  // The last operation that the task completed.
  // True if the task entered the next operation: the one after FlightStory::last_completed.
  bool entered = false;
  double entered_at = 0;        // The wall time of this entry.
  std::string operation;        // The next operation as the task called it.
  bool completed_next = false;  // True if the task completed the next operation.
  std::string failure;          // The reason for the failure of the next operation.
  int64_t step = 0;             // The step at the end of the generation.
  Phase phase = Phase::kStarting;
  // Wall times. phase_since is the start of `phase`. `end` is the time at which the task learned of
  // the generation's end.
  double phase_since = 0, end = 0;
  uint64_t lost_events = 0;
};

struct FlightNote {
  double at = 0;  // The wall time after subtraction of the clock offset.
  std::string task, text;
};

struct FlightStory {
  std::string run_id;
  uint64_t generation = 0;
  // The tasks of the generation. `missing` has the members without a record.
  std::vector<std::string> members, missing;
  std::vector<FlightPart> parts;  // In the order of ranks.
  // The last operation that all tasks with a record completed, or 0.
  uint64_t last_completed = 0;
  std::string last_operation;  // "" if all records have lost the event.
  int64_t last_step = 0;
  double last_at = 0;
  bool next = false;              // True if at least one task entered the next operation.
  bool diverged = false;          // True if tasks entered different operations.
  std::vector<FlightNote> notes;  // All other events, in the order of time.
  double started_at = 0;  // 0 if the generation did not start, or if its start is not recorded.
  double ended_at = 0;
  std::string reason;
  // The next generation that is known, or 0.
  uint64_t followed_by = 0;
  std::vector<std::string> came_back;  // For example "worker 1 (host b, pid 12), a new process".
};

// Makes the story. REQUIRES: question.records is not empty.
FlightStory BuildFlightStory(const FlightQuestion& question);

// Returns the story as sentences, one per line.
std::vector<std::string> FlightLines(const FlightStory& story);
Json FlightJson(const FlightStory& story);

// Returns the time in this host's time zone, such as "03:38:18.528".
std::string WallText(double wall);

}  // namespace muster
