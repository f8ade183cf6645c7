// What the flight records of one generation tell together: which collective all had completed, who
// had come to the next one and who had not, and why the generation ended. Pure functions.
//
// Clocks of hosts differ. All ranks complete an operation at nearly the same moment, so the times
// of another host's records are moved by the median difference between the completions that they
// share with the first record's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/cluster/flight_record.h"
#include "muster/json.h"

namespace muster {

struct FlightQuestion {
  std::vector<FlightRecord> records;  // of one generation
  // Of the next generation that left records: who came back. May be empty.
  std::vector<FlightRecord> later;
};

// One task's part in the story.
struct FlightPart {
  std::string task, host;
  int64_t pid = 0;
  double clock_offset = 0;      // seconds that were taken off its times
  int shared_operations = 0;    // that the offset was found from; 0: none was needed or possible
  uint64_t completed = 0;       // the last operation that it completed
  bool entered = false;         // the one after the last that all completed
  double entered_at = 0;        // wall
  std::string operation;        // which it called there
  bool completed_next = false;  // and completed it
  std::string failure;          // ... or why it failed
  int64_t step = 0;             // at the end of the generation
  Phase phase = Phase::kStarting;
  double phase_since = 0, end = 0;  // wall; `end`: when it knew that the generation was over
  uint64_t lost_events = 0;
};

struct FlightNote {
  double at = 0;  // wall, moved
  std::string task, text;
};

struct FlightStory {
  std::string run_id;
  uint64_t generation = 0;
  std::vector<std::string> members, missing;  // tasks; missing: without a record
  std::vector<FlightPart> parts;              // by rank
  // The last operation that all with a record completed; 0: none.
  uint64_t last_completed = 0;
  std::string last_operation;  // "" where no record holds it any more
  int64_t last_step = 0;
  double last_at = 0;
  bool next = false;              // somebody had come to the one after it
  bool diverged = false;          // not all to the same
  std::vector<FlightNote> notes;  // what else happened, in order
  double started_at = 0;          // 0: not recorded, or never started
  double ended_at = 0;
  std::string reason;  // why it ended
  // The next generation that is known of; 0: none.
  uint64_t followed_by = 0;
  std::vector<std::string> came_back;  // "worker 1 (host b, pid 12), a new process"
};

// REQUIRES: at least one record, all of one generation.
FlightStory TellFlight(const FlightQuestion& question);

// In plain sentences, one a line.
std::vector<std::string> FlightLines(const FlightStory& story);
Json FlightJson(const FlightStory& story);

// "03:38:18.528", this machine's time zone.
std::string WallText(double wall);

}  // namespace muster
